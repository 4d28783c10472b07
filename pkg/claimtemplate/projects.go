package claimtemplate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// Project is a project whose format a pod uses to request GPUs. All but Plain are values of the label
// tranche.dev/translate.
type Project string

// The projects.
const (
	KAI   Project = names.TranslateKAI
	HAMi  Project = names.TranslateHAMi
	Nos   Project = names.TranslateNos
	Plain Project = "device plugin"
)

// schedulers are the projects' schedulers.
var schedulers = map[string]Project{"kai-scheduler": KAI, "runai-scheduler": KAI, "hami-scheduler": HAMi, "nos-scheduler": Nos}

// SchedulerOf returns the project whose scheduler has a name, or "".
func SchedulerOf(name string) Project { return schedulers[name] }

// domains are the domains of the projects' keys, including subdomains.
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

// Known reports whether a resource, label or annotation belongs to a known project. Such a key is never
// ignored silently: it is translated, rejected, or reported to the user.
func Known(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// asking matches the annotations by which pods of KAI and Run:ai request a part of a GPU.
var asking = regexp.MustCompile(`^(gpu-fraction|gpu-memory|nvidia[.]com/container[.][^.]+[.]gpu-memory[.](request|limit))$`)

// Ignored returns the annotation of a pod that requests a GPU although the pod has none, or "". KAI's
// schedulers read it themselves.
func Ignored(pod *corev1.Pod) string {
	if SchedulerOf(pod.Spec.SchedulerName) == KAI || len(pod.Spec.ResourceClaims) > 0 {
		return ""
	}
	return AsksFor(pod.Annotations)
}

// AsksFor returns the annotation by which a pod requests a GPU without a limit, or "".
func AsksFor(annotations map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if asking.MatchString(key) {
			return key
		}
	}
	return ""
}
