package translate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// domains are those of the projects. Their subdomains count, too.
//
//   - NVIDIA and AMD: device plugins, GPU operators, KAI 0.18, HAMi
//   - HAMi: https://github.com/Project-HAMi/HAMi, pkg/device, and its ancestor 4pd.io
//   - Volcano: https://github.com/Project-HAMi/volcano-vgpu-device-plugin
//   - KAI and Run:ai: https://github.com/kai-scheduler/KAI-Scheduler, pkg/common/constants
//   - nos: https://github.com/nebuly-ai/nos, pkg/api
//   - InstaSlice: https://github.com/openshift/instaslice-operator, internal/controller/constants.go
//   - Kaiwo: https://github.com/silogen/kaiwo
var domains = []string{
	"nvidia.com", "amd.com", "hami.io", "4pd.io", "volcano.sh", "kai.scheduler", "run.ai", "runai",
	"nebuly.com", "nebuly.ai", "org.instaslice", "silogen.ai",
}

// Known tells whether a resource, label or annotation is of a project that is read here. Such a key
// is never lost in silence: it is translated, refused, or people are told that it stays.
func Known(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// Refusal is for keys that ask for a GPU and are neither translated nor served. The chart's
// policies have the same (files/translate.yaml).
type Refusal struct {
	// Pattern matches a key.
	Pattern string `json:"pattern"`
	// Text follows the key in a message, and says what to do.
	Text string `json:"text"`
	// of is Pattern.
	of *regexp.Regexp
}

// RefusedLimits and RefusedAnnotations are all of them. One key matches one pattern at most.
var (
	RefusedLimits = refusals(
		Refusal{Pattern: `^nvidia[.]com/mig-[0-9]+c[.]`, Text: "is a compute instance, a part of a partition, and those are not created: ask for the partition, as in nvidia.com/mig-3g.20gb"},
		Refusal{Pattern: `^nvidia[.]com/mig-[0-9]+g[.].*[.]shared$`, Text: "is a replica of a partition, and those have no resource name: ask for the partition, as in nvidia.com/mig-1g.5gb, or for a share by a claim"},
		Refusal{Pattern: `^amd[.]com/[a-z]+_nps[0-9]+$`, Text: "is a partition, and those have no resource name: ask for one by a claim, as in class gpu-xcp-cpx.tranche.dev"},
		Refusal{Pattern: `^(hami[.]io|4pd[.]io)/`, Text: "is not translated: write nvidia.com/gpu, nvidia.com/gpumem, nvidia.com/gpumem-percentage or nvidia.com/gpucores in its place"},
		Refusal{Pattern: `^volcano[.]sh/v?gpu-`, Text: "is not translated: write nvidia.com/gpu, nvidia.com/gpumem, nvidia.com/gpumem-percentage or nvidia.com/gpucores in its place"},
		Refusal{Pattern: `^(org[.]instaslice/|nvidia[.]com/accelerator-memory$)`, Text: "was written by InstaSlice's webhook: remove it, and ask for the partition, as in nvidia.com/mig-1g.5gb"},
	)
	RefusedAnnotations = refusals(
		Refusal{Pattern: `^nvidia[.]com/container[.]`, Text: "asks for a share in the way of KAI 0.18 and Run:ai 3.0, which is not translated: write annotation gpu-memory with the MiB, and gpu-fraction-container-name with the container, or a claim"},
	)
)

func refusals(all ...Refusal) []Refusal {
	for i := range all {
		all[i].of = regexp.MustCompile(all[i].Pattern)
	}
	return all
}

// refused is a refusal of a key; empty: there is none.
func refused(of []Refusal, key string) string {
	for _, r := range of {
		if r.of.MatchString(key) {
			return key + " " + r.Text
		}
	}
	return ""
}

// untranslated are problems with keys that ask for a GPU in a way that nobody translates.
func untranslated(pod *corev1.PodTemplateSpec) (problems []string) {
	for _, c := range containers(pod) {
		for _, name := range c.limits() {
			if text := refused(RefusedLimits, string(name)); text != "" {
				problems = append(problems, "container "+c.Name+": "+text)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if text := refused(RefusedAnnotations, key); text != "" {
			problems = append(problems, "annotation "+text)
		}
	}
	return problems
}

// AsksFor is the annotation by which a pod asks for a GPU, without a limit; empty: there is none.
// refusal says what to do if nothing translates it.
func AsksFor(annotations map[string]string) (key, refusal string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if text := refused(RefusedAnnotations, key); text != "" {
			return key, text
		}
	}
	for _, key := range []string{fractionKey, memoryKey} {
		if _, has := annotations[key]; has {
			return key, ""
		}
	}
	return "", ""
}

// counterparts are what to use in the place of labels and annotations that change which GPU a pod
// gets, or when.
var counterparts = map[string]string{
	"kai.scheduler/queue":                    "use a ResourceQuota or Kueue",
	"runai/queue":                            "use a ResourceQuota or Kueue",
	"kai.scheduler/node-pool":                "use a nodeSelector",
	"kai.scheduler/gpu-compute-sharing-mode": "the PartitionProfile sets the sharing strategy",
	"hami.io/gpu-scheduler-policy":           "the default scheduler chooses the GPU",
	"hami.io/node-scheduler-policy":          "the default scheduler chooses the GPU",
	"hami.io/device-scoring-weights":         "the default scheduler chooses the GPU",
	"nos.nebuly.com/capacity":                "use a ResourceQuota or Kueue",
	"nvidia.com/gpu.memory":                  "it is a label of nodes, and asks for no GPU: use a claim",
}

// Counterpart says what to use in the place of a label or annotation; empty: nothing in particular.
func Counterpart(key string) string { return counterparts[key] }
