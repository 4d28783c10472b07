package translate

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

// Project is whose way a pod has to ask for GPUs. The first three are values of the label
// tranche.dev/translate.
type Project string

// The projects.
const (
	KAI   Project = "kai"
	HAMi  Project = "hami"
	Nos   Project = "nos"
	Plain Project = "device plugin"
)

// Claim is what a container gets.
type Claim struct {
	Container
	// Name is that of the claim in the pod. Claims of one name are one claim.
	Name string
	// Template is the name of a ResourceClaimTemplate, Spec what it asks for.
	Template string
	Spec     resourceapi.ResourceClaimSpec
	// Remove are the limits and requests in whose place the claim is.
	Remove []corev1.ResourceName
}

// Container is a container of a pod.
type Container struct {
	Init  bool
	Index int
	Name  string
	of    *corev1.Container
}

// Result is what becomes of a pod.
type Result struct {
	Claims []Claim
	// Scheduler is the other scheduler, in whose place the default one is.
	Scheduler string
	// Annotations are those that mean nothing any more.
	Annotations []string
	// Notes say what has no counterpart, for people.
	Notes []string
	// Problems say why nothing becomes of the pod, and what to do.
	Problems []string
}

// schedulers are those of the projects.
var schedulers = map[string]Project{"kai-scheduler": KAI, "runai-scheduler": KAI, "hami-scheduler": HAMi, "nos-scheduler": Nos}

// SchedulerOf is the project whose scheduler has a name; empty: none.
func SchedulerOf(name string) Project { return schedulers[name] }

// Of tells whose ways a pod has. There can be none.
func Of(pod *corev1.PodTemplateSpec) (all []Project) {
	for _, p := range []struct {
		project Project
		is      func(*corev1.PodTemplateSpec) bool
	}{{KAI, isKAI}, {HAMi, isHAMi}, {Nos, isNos}} {
		if SchedulerOf(pod.Spec.SchedulerName) == p.project || p.is(pod) {
			all = append(all, p.project)
		}
	}
	if len(all) == 0 && isPlain(pod) {
		return []Project{Plain}
	}
	return all
}

// Pod translates a pod in the way of a project. Without one, it says what of the pod is not served.
func Pod(project Project, pod *corev1.PodTemplateSpec) Result {
	var r Result
	switch project {
	case KAI:
		r = kai(pod)
	case HAMi:
		r = hami(pod)
	case Nos:
		r = nos(pod)
	case Plain:
		r = plain(pod)
	}
	r.Problems = append(r.Problems, untranslated(pod)...)
	for i := range r.Claims {
		c := &r.Claims[i]
		if len(r.Problems) > 0 {
			break // names of bad amounts are bad, too
		}
		if c.Spec.Devices.Requests != nil {
			continue
		}
		request, err := claimtemplate.Parse(c.Template)
		if err != nil {
			r.Problems = append(r.Problems, err.Error())
			continue
		}
		c.Spec = request.Spec()
	}
	if len(r.Problems) > 0 {
		return Result{Problems: r.Problems}
	}
	if SchedulerOf(pod.Spec.SchedulerName) == project && project != "" {
		r.Scheduler = pod.Spec.SchedulerName
	}
	if r.Scheduler != "" && len(r.Claims) == 0 && len(served(pod)) == 0 {
		r.Notes = append(r.Notes, "the pod asks for no GPU: it gets none, and the default scheduler places it")
	}
	r.Notes = append(r.Notes, stays(pod, r.Claims)...)
	return r
}

// containers are the init containers and the containers.
func containers(pod *corev1.PodTemplateSpec) (all []Container) {
	for i := range pod.Spec.InitContainers {
		all = append(all, Container{Init: true, Index: i, Name: pod.Spec.InitContainers[i].Name, of: &pod.Spec.InitContainers[i]})
	}
	for i := range pod.Spec.Containers {
		all = append(all, Container{Index: i, Name: pod.Spec.Containers[i].Name, of: &pod.Spec.Containers[i]})
	}
	return all
}

// claim is the name of the claim of a container.
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

// limit is a limit of a container.
func (c Container) limit(name string) (resource.Quantity, bool) {
	q, ok := c.of.Resources.Limits[corev1.ResourceName(name)]
	return q, ok
}

// limits are the names of the limits of a container, in order.
func (c Container) limits() []corev1.ResourceName {
	return slices.Sorted(maps.Keys(c.of.Resources.Limits))
}

// whole tells whether a quantity is a whole number in a range.
func whole(q resource.Quantity, least, most int64) bool {
	n, ok := q.AsInt64()
	return ok && n >= least && n <= most
}

// ownClaims are problems with claims of the pod that have a name that is needed.
func ownClaims(pod *corev1.PodTemplateSpec, names ...string) (problems []string) {
	for _, c := range pod.Spec.ResourceClaims {
		if slices.Contains(names, c.Name) {
			problems = append(problems, "the pod has a claim of its own with the name "+c.Name+", which the claim for its limits gets: give it another name")
		}
	}
	return problems
}

// shown is text of a pod in a message.
func shown(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strings.ReplaceAll(s, "\n", " ")
}

// withoutEmpty drops empty strings.
func withoutEmpty(all []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}
