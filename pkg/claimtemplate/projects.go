package claimtemplate

import (
	"maps"
	"regexp"
	"slices"
	"strings"
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

// schedulers are those of the projects.
var schedulers = map[string]Project{"kai-scheduler": KAI, "runai-scheduler": KAI, "hami-scheduler": HAMi, "nos-scheduler": Nos}

// SchedulerOf is the project whose scheduler has a name; empty: none.
func SchedulerOf(name string) Project { return schedulers[name] }

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

// kai018 begins the annotations of KAI 0.18 and Run:ai 3.0, which are neither translated nor served.
// The chart's policies refuse the same (files/translate.yaml).
var kai018 = struct {
	pattern *regexp.Regexp
	// text follows the annotation in a message, and says what to do.
	text string
}{
	regexp.MustCompile(`^nvidia[.]com/container[.]`),
	"asks for a share in the way of KAI 0.18 and Run:ai 3.0, which is not translated: write annotation gpu-memory with the MiB, and gpu-fraction-container-name with the container, or a claim",
}

// AsksFor is the annotation by which a pod asks for a GPU, without a limit; empty: there is none.
// refusal says what to do if nothing translates it.
func AsksFor(annotations map[string]string) (key, refusal string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if kai018.pattern.MatchString(key) {
			return key, key + " " + kai018.text
		}
	}
	for _, key := range []string{"gpu-fraction", "gpu-memory"} {
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
