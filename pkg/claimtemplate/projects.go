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

// kai018 matches the annotations of KAI 0.18 and Run:ai 3.0, which are neither translated nor served.
// The chart's policies reject the same (files/translate.yaml).
var kai018 = struct {
	pattern *regexp.Regexp
	// text follows the annotation in a message, with the remedy.
	text string
}{
	regexp.MustCompile(`^nvidia[.]com/container[.]`),
	"asks for a share in the way of KAI 0.18 and Run:ai 3.0, which is not translated: write annotation gpu-memory with the MiB, and gpu-fraction-container-name with the container, or a claim",
}

// Ignored returns the annotation of a pod that requests a GPU although the pod has none, or "". KAI's
// schedulers read it themselves. refusal is the remedy if the annotation is not translated.
func Ignored(pod *corev1.Pod) (key, refusal string) {
	if SchedulerOf(pod.Spec.SchedulerName) == KAI || len(pod.Spec.ResourceClaims) > 0 {
		return "", ""
	}
	return AsksFor(pod.Annotations)
}

// AsksFor returns the annotation by which a pod requests a GPU without a limit, or "". refusal is the
// remedy if the annotation is not translated.
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
