package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// vendor has HAMi's names: https://github.com/Project-HAMi/HAMi, pkg/device/{nvidia,amd}/device.go.
type vendor struct{ name, prefix, uuid string }

var vendors = []vendor{{"nvidia", "nvidia.com/", "gpuuuid"}, {"amd", "amd.com/", "gpu-uuid"}}

// hamiTerm is a term of a template's name.
var hamiTerm = regexp.MustCompile(`^[a-z]+-[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

const (
	priorityKey = "nvidia.com/priority"
	modeKey     = "nvidia.com/vgpu-mode"
	numaKey     = "nvidia.com/numa-bind"

	mostSelection = 180
	mostValue     = 200
)

// selections are the annotations that select GPUs, with the beginning of their terms.
func (v vendor) selections() [][2]string {
	return [][2]string{
		{"type-", v.prefix + "use-gputype"}, {"nottype-", v.prefix + "nouse-gputype"},
		{"uuid-", v.prefix + "use-" + v.uuid}, {"notuuid-", v.prefix + "nouse-" + v.uuid},
	}
}

// terms are those of the template's name: type-a100.
func (v vendor) terms(pod *corev1.PodTemplateSpec) (terms []string) {
	for _, s := range v.selections() {
		text := pod.Annotations[s[1]]
		if len([]rune(text)) > mostValue {
			text = "(more than 200 characters)"
		}
		for value := range strings.SplitSeq(text, ",") {
			value = strings.NewReplacer(" ", "-", "_", "-").Replace(lower(strings.TrimSpace(value)))
			if value != "" {
				terms = append(terms, s[0]+value)
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
			return own && (slices.Contains([]string{"gpumem", "gpumem-percentage", "gpucores"}, name) || name == "gpu" && selects)
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
		if len([]rune(strings.Join(terms, "."))) > mostSelection {
			r.Problems = append(r.Problems, "the annotations of "+v.name+".com select GPUs by more than 180 characters: write a claim")
		}
		for _, t := range terms {
			if !hamiTerm.MatchString(t) {
				_, text, _ := strings.Cut(t, "-")
				r.Problems = append(r.Problems, fmt.Sprintf("the annotations of %s.com select a type or UUID by '%s', and it may have letters, digits, spaces, underscores and dashes only, at most 63", v.name, shown(text)))
			}
		}
		for _, c := range asking {
			for _, p := range v.problems(c) {
				r.Problems = append(r.Problems, "container "+c.Name+": "+p)
			}
			r.Claims = append(r.Claims, v.ask(c, terms))
		}
		for _, s := range v.selections() {
			r.Annotations = append(r.Annotations, s[1])
		}
	}
	r.Problems = append(r.Problems, ownClaims(pod, names...)...)
	return r
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
		number("gpu", 1, 16, "from 1 to 16"),
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
func (v vendor) ask(c Container, terms []string) Claim {
	number := func(name string, without int64) int64 {
		if q, has := c.limit(v.prefix + name); has {
			return q.Value()
		}
		return without
	}
	var b strings.Builder
	b.WriteString("tranche-")
	if v.name == "amd" {
		b.WriteString("amd-")
	}
	memory, percentage, cores := number("gpumem", 0), int64(100), int64(0)
	if v.name == "nvidia" {
		percentage, cores = number("gpumem-percentage", 100), number("gpucores", 0)
	}
	limited := cores > 0 && cores < 100
	switch {
	case memory != 0:
		fmt.Fprintf(&b, "memory-%dmi", memory)
	case percentage == 100 && !limited:
		b.WriteString("gpu")
	default:
		fmt.Fprintf(&b, "fraction-%d", percentage*10)
	}
	if limited {
		fmt.Fprintf(&b, "-compute-%d", cores)
	}
	if count := number("gpu", 1); count > 1 {
		fmt.Fprintf(&b, "-x%d", count)
	}
	for _, t := range terms {
		b.WriteString("." + t)
	}
	claim := Claim{Container: c, Name: c.claim(v.name), Template: b.String()}
	for _, name := range []string{"gpu", "gpumem", "gpumem-percentage", "gpucores"} {
		claim.Remove = append(claim.Remove, corev1.ResourceName(v.prefix+name))
	}
	return claim
}
