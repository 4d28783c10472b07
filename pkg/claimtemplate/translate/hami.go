package translate

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// vendor has HAMi's names: https://github.com/Project-HAMi/HAMi, pkg/device/{nvidia,amd}/device.go.
// NVIDIA's count was vgpu in older releases, and is where resourceCountName says so.
type vendor struct {
	name, prefix, uuid string
	limits             []string
}

var vendors = []vendor{
	{"nvidia", "nvidia.com/", "gpuuuid", []string{"gpu", "vgpu", "gpumem", "gpumem-percentage", "gpucores"}},
	{"amd", "amd.com/", "gpu-uuid", []string{"gpu", "gpumem", "gpumem-percentage", "gpucores"}},
}

// termValue is the value of a term of a template's name.
var termValue = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

const (
	priorityKey = "nvidia.com/priority"
	modeKey     = "nvidia.com/vgpu-mode"
	numaKey     = "nvidia.com/numa-bind"

	// mostSelection is the length of terms in the name of a template, with the dots between them.
	mostSelection = 180
)

// selection is an annotation that selects GPUs.
type selection struct {
	kind claimtemplate.TermKind
	key  string
}

func (v vendor) selections() []selection {
	return []selection{
		{claimtemplate.Type, v.prefix + "use-gputype"}, {claimtemplate.NotType, v.prefix + "nouse-gputype"},
		{claimtemplate.UUID, v.prefix + "use-" + v.uuid}, {claimtemplate.NotUUID, v.prefix + "nouse-" + v.uuid},
	}
}

// terms are those of the template.
func (v vendor) terms(pod *corev1.PodTemplateSpec) (terms []claimtemplate.Term) {
	for _, s := range v.selections() {
		for value := range strings.SplitSeq(pod.Annotations[s.key], ",") {
			value = strings.NewReplacer(" ", "-", "_", "-").Replace(lower(strings.TrimSpace(value)))
			if value != "" {
				terms = append(terms, claimtemplate.Term{Kind: s.kind, Value: value})
			}
		}
	}
	return terms
}

// lower is lowerAscii of CEL.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// asking are the containers that ask for GPUs in HAMi's way. One that asks for whole GPUs only,
// without a selection, stays as it is.
func (v vendor) asking(pod *corev1.PodTemplateSpec) (all []Container) {
	selects := len(v.terms(pod)) > 0
	for _, c := range containers(pod) {
		if slices.ContainsFunc(c.limits(), func(n corev1.ResourceName) bool {
			name, own := strings.CutPrefix(string(n), v.prefix)
			return own && slices.Contains(v.limits, name) && (name != "gpu" || selects)
		}) {
			all = append(all, c)
		}
	}
	return all
}

func isHAMi(pod *corev1.PodTemplateSpec) bool {
	for _, c := range containers(pod) {
		if _, has := c.limit(priorityKey); has {
			return true
		}
	}
	return slices.ContainsFunc(vendors, func(v vendor) bool { return len(v.asking(pod)) > 0 })
}

func hami(pod *corev1.PodTemplateSpec) (r Result) {
	all := containers(pod)
	nvidia, amd := vendors[0].asking(pod), vendors[1].asking(pod)
	if mode, has := pod.Annotations[modeKey]; has && mode != "hami-core" && len(nvidia) > 0 {
		r.Problems = append(r.Problems, "annotation nvidia.com/vgpu-mode has no counterpart: ask for a MIG partition by a claim, or have the sharing strategy set by a PartitionProfile")
	}
	if slices.Contains([]string{"true", "1", "t"}, lower(pod.Annotations[numaKey])) && len(nvidia) > 0 {
		r.Problems = append(r.Problems, "annotation nvidia.com/numa-bind has no counterpart: write a claim with matchAttribute resource.kubernetes.io/numaNode")
	}
	if slices.ContainsFunc(all, func(c Container) bool { _, has := c.limit(priorityKey); return has }) {
		r.Problems = append(r.Problems, "nvidia.com/priority has no counterpart: remove it")
	}
	var names []string
	for _, c := range slices.Concat(nvidia, amd) {
		names = append(names, c.claim("nvidia"), c.claim("amd"))
	}
	for _, v := range vendors {
		asking, terms := v.asking(pod), v.terms(pod)
		if len(asking) == 0 {
			continue
		}
		for _, t := range terms {
			if !termValue.MatchString(t.Value) {
				r.Problems = append(r.Problems, fmt.Sprintf("the annotations of %s.com select a type or UUID by '%s', and it may have letters, digits, spaces, underscores and dashes only, at most 63", v.name, shown(t.Value)))
			}
		}
		for _, c := range asking {
			for _, p := range v.problems(c) {
				r.Problems = append(r.Problems, "container "+c.Name+": "+p)
			}
			claim := v.ask(c, terms)
			if claim.Spec.Devices.Requests != nil && slices.ContainsFunc(claim.Spec.Devices.Requests[0].Exactly.Selectors, func(s resourceapi.DeviceSelector) bool {
				return len(s.CEL.Expression) > resourceapi.CELSelectorExpressionMaxLength
			}) {
				r.Problems = append(r.Problems, fmt.Sprintf("the annotations of %s.com select more GPUs than a claim can: a selector has at most %d characters", v.name, resourceapi.CELSelectorExpressionMaxLength))
			}
			r.Claims = append(r.Claims, claim)
		}
		for _, s := range v.selections() {
			r.Annotations = append(r.Annotations, s.key)
		}
	}
	r.Problems = append(r.Problems, ownClaims(pod, names...)...)
	return r
}

// tooLong tells whether the name of a template cannot carry the terms. The policies refuse them.
func tooLong(terms []claimtemplate.Term) bool {
	n := -1
	for _, t := range terms {
		n += len(t.Kind) + len("-") + utf8.RuneCountInString(t.Value) + len(".")
	}
	return n > mostSelection
}

// shortTemplate is a template for any number of terms. Its name does not carry them, so only convert
// can have it.
func shortTemplate(request claimtemplate.Request) (name string, spec resourceapi.ResourceClaimSpec) {
	sum := sha256.Sum256([]byte(request.String()))
	spec = request.Spec()
	request.Terms = nil
	return fmt.Sprintf("selected-%s-%x", strings.TrimPrefix(request.String(), claimtemplate.Prefix), sum[:4]), spec
}

func (v vendor) problems(c Container) []string {
	number := func(name string, least, most int64, must string) string {
		q, has := c.limit(v.prefix + name)
		if !has || whole(q, least, most) {
			return ""
		}
		return v.prefix + name + " is " + q.String() + ", and it must be " + must
	}
	all := []string{
		number("gpu", 1, claimtemplate.MostDevices, "from 1 to 16"),
		number("gpumem", 1, 1048576, "a whole number of MiB from 1 to 1048576"),
	}
	_, hasMemory := c.limit(v.prefix + "gpumem")
	percentage, hasPercentage := c.limit(v.prefix + "gpumem-percentage")
	cores, hasCores := c.limit(v.prefix + "gpucores")
	if v.name == "amd" {
		if hasPercentage {
			all = append(all, "amd.com/gpumem-percentage does not exist: use amd.com/gpumem")
		}
		if hasCores && !whole(cores, 100, 100) {
			all = append(all, "amd.com/gpucores is "+cores.String()+", and nothing limits the compute of a share of an AMD GPU: remove it, or ask for a partition by a claim")
		}
		return withoutEmpty(all)
	}
	all = append(all, number("vgpu", 1, claimtemplate.MostDevices, "from 1 to 16"))
	if _, older := c.limit("nvidia.com/vgpu"); older {
		if _, has := c.limit("nvidia.com/gpu"); has {
			all = append(all, "nvidia.com/gpu and nvidia.com/vgpu exclude each other: remove one")
		}
	}
	all = append(all, number("gpumem-percentage", 1, 100, "a whole number from 1 to 100"))
	if hasPercentage && hasMemory {
		all = append(all, "nvidia.com/gpumem and nvidia.com/gpumem-percentage exclude each other: remove one")
	}
	all = append(all, number("gpucores", 0, 100, "a whole number from 0 to 100"))
	if hasCores && whole(cores, 100, 100) && (hasMemory || hasPercentage && !whole(percentage, 100, 100)) {
		all = append(all, "nvidia.com/gpucores is 100, which reserves a whole GPU in HAMi: remove it, or the amount of memory")
	}
	return withoutEmpty(all)
}

// ask is the claim of a container whose limits have no problems.
func (v vendor) ask(c Container, terms []claimtemplate.Term) Claim {
	number := func(name string, without int64) int64 {
		if q, has := c.limit(v.prefix + name); has {
			return q.Value()
		}
		return without
	}
	request := claimtemplate.Request{Vendor: gpu.Vendor(v.name), Memory: number("gpumem", 0), Count: number("gpu", number("vgpu", 1)), Terms: terms}
	percentage := int64(100)
	if v.name == "nvidia" {
		percentage = number("gpumem-percentage", 100)
		request.Compute = number("gpucores", 0) % 100 // 100 is no limit
	}
	if request.Memory == 0 && (percentage != 100 || request.Compute != 0) {
		request.Fraction = percentage * 10
	}
	claim := Claim{Container: c, Name: c.claim(v.name), Template: request.String()}
	if tooLong(terms) {
		claim.Template, claim.Spec = shortTemplate(request)
	}
	for _, name := range v.limits {
		claim.Remove = append(claim.Remove, corev1.ResourceName(v.prefix+name))
	}
	return claim
}
