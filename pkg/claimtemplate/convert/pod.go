package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// Claim is what a container gets.
type Claim struct {
	Container
	// Name is the name of the claim in the pod. Claims with the same name are the same claim.
	Name string
	// Template is the name of a ResourceClaimTemplate, Spec its spec.
	Template string
	Spec     resourceapi.ResourceClaimSpec
	// Remove are the limits and requests that the claim replaces.
	Remove []corev1.ResourceName
}

// Container is a container of a pod.
type Container struct {
	Init  bool
	Index int
	Name  string
	of    *corev1.Container
}

// Result is the conversion of a pod.
type Result struct {
	Claims []Claim
	// Scheduler is the scheduler that the default one replaces.
	Scheduler string
	// Annotations are the annotations to remove.
	Annotations []string
	// Notes list what has no counterpart.
	Notes []string
	// Problems are the reasons for which the pod cannot be converted, with remedies.
	Problems []string
}

// Of returns the projects whose formats a pod uses to request GPUs, if any.
func Of(pod *corev1.PodTemplateSpec) (all []claimtemplate.Project) {
	for _, p := range []claimtemplate.Project{claimtemplate.KAI, claimtemplate.HAMi, claimtemplate.Nos} {
		if _, is := translate(p, pod); is || claimtemplate.SchedulerOf(pod.Spec.SchedulerName) == p {
			all = append(all, p)
		}
	}
	if len(all) == 0 && len(served(pod)) > 0 {
		return []claimtemplate.Project{claimtemplate.Plain}
	}
	return all
}

// Pod converts a pod in the format of a project. Without a project, it reports what is not served.
func Pod(project claimtemplate.Project, pod *corev1.PodTemplateSpec) (r Result) {
	switch project {
	case claimtemplate.KAI, claimtemplate.HAMi, claimtemplate.Nos:
		r, _ = translate(project, pod)
	case claimtemplate.Plain:
		r = plain(pod)
		fallthrough
	default:
		e, err := evaluate(claimtemplate.Nos, pod)
		if err != nil {
			return Result{Problems: []string{err.Error()}}
		}
		r.Problems = append(r.Problems, e.strings("untranslated")...)
	}
	for i := range r.Claims {
		if len(r.Problems) > 0 {
			break // invalid amounts have invalid names
		}
		r.Problems = append(r.Problems, r.Claims[i].complete()...)
	}
	if len(r.Problems) > 0 {
		return Result{Problems: r.Problems}
	}
	if claimtemplate.SchedulerOf(pod.Spec.SchedulerName) == project && project != "" {
		r.Scheduler = pod.Spec.SchedulerName
	}
	if r.Scheduler != "" && len(r.Claims) == 0 && len(served(pod)) == 0 {
		r.Notes = append(r.Notes, "the pod requests no GPU: it gets none, and the default scheduler places it")
	}
	r.Notes = append(r.Notes, stays(pod, r.Claims)...)
	return r
}

// complete sets the spec of a claim's template from its name.
func (c *Claim) complete() (problems []string) {
	if c.Spec.Devices.Requests == nil {
		request, err := claimtemplate.Parse(c.Template)
		if err != nil {
			return []string{err.Error()}
		}
		c.Spec = request.Spec()
	}
	for _, s := range c.Spec.Devices.Requests[0].Exactly.Selectors {
		if len(s.CEL.Expression) > resourceapi.CELSelectorExpressionMaxLength {
			vendor := "nvidia"
			if strings.HasPrefix(c.Name, "tranche-amd") {
				vendor = "amd"
			}
			problems = append(problems, fmt.Sprintf("the annotations of %s.com select more GPUs than a claim can: a selector has at most %d characters", vendor, resourceapi.CELSelectorExpressionMaxLength))
		}
	}
	return problems
}

// translate translates a pod as the policies of a project do, and reports whether it uses the project's
// format.
func translate(project claimtemplate.Project, pod *corev1.PodTemplateSpec) (r Result, is bool) {
	e, err := evaluate(project, pod)
	if err != nil {
		return Result{Problems: []string{err.Error()}}, true
	}
	if project == claimtemplate.HAMi {
		if vendors := e.tooLong(pod); len(vendors) > 0 {
			return translateLong(pod, vendors)
		}
	}
	var asks []struct {
		Path, Claim, Template string
		// Remove are paths below resources.
		Remove []string
	}
	var shares bool
	var naming []struct{ Key string }
	r.Problems = e.strings("problems")
	for name, into := range map[string]any{"asks": &asks, "shares": &shares, "naming": &naming} {
		if err := e.read(name, into); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
	}
	own := len(r.Problems) - len(e.strings("untranslated"))
	if len(asks) == 0 {
		r.Problems = append(r.Problems, e.unmet()...)
	}
	all := containers(pod)
	for _, a := range asks {
		claim := Claim{Name: a.Claim, Template: a.Template}
		if i := slices.IndexFunc(all, func(c Container) bool { return c.path() == a.Path }); i >= 0 {
			claim.Container = all[i]
		}
		for _, path := range a.Remove {
			_, key, _ := strings.Cut(path, "/")
			claim.Remove = append(claim.Remove, corev1.ResourceName(strings.ReplaceAll(key, "~1", "/")))
		}
		r.Claims = append(r.Claims, claim)
	}
	switch {
	case project == claimtemplate.KAI && shares:
		r.Annotations = []string{"gpu-fraction", "gpu-memory", "gpu-memory.limit", "gpu-fraction-num-devices", "mps", "kai.scheduler/gpu-compute-sharing-mode"}
		for _, n := range naming {
			r.Annotations = append(r.Annotations, n.Key)
		}
		for _, key := range e.strings("mps") {
			r.Notes = append(r.Notes, "annotation "+key+": the claim selects GPUs whose PartitionProfile has the strategy MPS")
		}
	case project == claimtemplate.HAMi:
		for _, vendor := range hamiVendors {
			if e.count(vendor) > 0 {
				r.Annotations = append(r.Annotations, selections[vendor]...)
			}
		}
	case project == claimtemplate.Nos && pod.Spec.HostIPC && len(asks) > 0:
		r.Notes = append(r.Notes, "hostIPC and runAsUser: 1000 were for the MPS server of nos: remove them if nothing else needs them")
	}
	is = own > 0 || shares
	for _, asking := range []string{"asks", "naming", "nvidia", "amd", "slices"} { // missing variables are empty
		is = is || e.count(asking) > 0
	}
	return r, is
}

func (e evaluated) strings(name string) (all []string) {
	_ = e.read(name, &all)
	return all
}

func (e evaluated) count(name string) int {
	var all []any
	_ = e.read(name, &all)
	return len(all)
}

func containers(pod *corev1.PodTemplateSpec) (all []Container) {
	for i := range pod.Spec.InitContainers {
		all = append(all, Container{Init: true, Index: i, Name: pod.Spec.InitContainers[i].Name, of: &pod.Spec.InitContainers[i]})
	}
	for i := range pod.Spec.Containers {
		all = append(all, Container{Index: i, Name: pod.Spec.Containers[i].Name, of: &pod.Spec.Containers[i]})
	}
	return all
}

func (c Container) claim(vendor string) string {
	name := "tranche"
	if vendor == "amd" {
		name += "-amd"
	}
	if c.Init {
		name += "-init"
	}
	return fmt.Sprintf("%s-%d", name, c.Index)
}

func (c Container) path() string {
	if c.Init {
		return fmt.Sprintf("/spec/initContainers/%d", c.Index)
	}
	return fmt.Sprintf("/spec/containers/%d", c.Index)
}

func (c Container) limits() []corev1.ResourceName {
	return slices.Sorted(maps.Keys(c.of.Resources.Limits))
}

func whole(q resource.Quantity, least, most int64) bool {
	n, ok := q.AsInt64()
	return ok && n >= least && n <= most
}

// ownClaims returns problems with claims of the pod whose names are needed.
func ownClaims(pod *corev1.PodTemplateSpec, names ...string) (problems []string) {
	for _, c := range pod.Spec.ResourceClaims {
		if slices.Contains(names, c.Name) {
			problems = append(problems, "the pod has a claim of its own with the name "+c.Name+", which the claim for its limits gets: give it another name")
		}
	}
	return problems
}
