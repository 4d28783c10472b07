package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// KAI's annotations: https://github.com/NVIDIA/KAI-Scheduler, pkg/common/constants.
const (
	fractionKey  = "gpu-fraction"
	memoryKey    = "gpu-memory"
	devicesKey   = "gpu-fraction-num-devices"
	containerKey = "gpu-fraction-container-name"
	mpsKey       = "mps"
	computeKey   = "kai.scheduler/gpu-compute-sharing-mode"

	kaiClaim = "tranche"
)

var (
	kaiFraction = regexp.MustCompile(`^0?[.][0-9]{0,2}[1-9]0*$`)
	kaiMemory   = regexp.MustCompile(`^0*[1-9][0-9]{0,6}$`)
	kaiDevices  = regexp.MustCompile(`^[0-9]{1,2}$`)
)

func isKAI(pod *corev1.PodTemplateSpec) bool {
	for _, key := range []string{fractionKey, memoryKey, devicesKey, containerKey} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	return pod.Annotations[mpsKey] == "true"
}

func kai(pod *corev1.PodTemplateSpec) (r Result) {
	fraction, hasFraction := pod.Annotations[fractionKey]
	memory, hasMemory := pod.Annotations[memoryKey]
	devices, hasDevices := pod.Annotations[devicesKey]
	name, named := pod.Annotations[containerKey]
	mps, shares := pod.Annotations[mpsKey] == "true", hasFraction || hasMemory
	if !hasDevices {
		devices = "1"
	}
	count, _ := strconv.ParseInt(devices, 10, 64)
	mebibytes, _ := strconv.ParseInt(memory, 10, 64)

	var chosen *Container
	wholeGPU := false
	for _, c := range containers(pod) {
		if named && c.Name == name || !named && !c.Init && c.Index == 0 {
			chosen = &c
		}
		if _, has := c.limit("nvidia.com/gpu"); has {
			wholeGPU = true
		}
	}
	problem := func(is bool, format string, args ...any) {
		if is {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	problem(!shares && hasDevices, "annotation gpu-fraction-num-devices needs gpu-fraction or gpu-memory")
	problem(!shares && mps, "annotation mps needs gpu-fraction or gpu-memory")
	problem(hasFraction && hasMemory, "annotations gpu-fraction and gpu-memory exclude each other: remove one")
	problem(hasFraction && !kaiFraction.MatchString(fraction),
		"annotation gpu-fraction is '%s', and it must be above 0, below 1 and have at most three decimals, as in 0.5", shown(fraction))
	problem(hasMemory && (!kaiMemory.MatchString(memory) || len(memory) > 12 || mebibytes > 1048576),
		"annotation gpu-memory is '%s', and it must be a whole number of MiB from 1 to 1048576, as in 2000", shown(memory))
	problem(!kaiDevices.MatchString(devices) || count < 1 || count > 16,
		"annotation gpu-fraction-num-devices is '%s', and it must be from 1 to 16", shown(devices))
	problem(shares && mps && devices != "1", "annotation mps with more than one device: a process can use one MPS daemon only")
	problem(shares && pod.Annotations[computeKey] != "" && pod.Annotations[computeKey] != "time-slicing",
		"annotation kai.scheduler/gpu-compute-sharing-mode is '%s': remove it, and write mps: \"true\" for GPUs that are shared by MPS", shown(pod.Annotations[computeKey]))
	problem(shares && chosen == nil, "annotation gpu-fraction-container-name names '%s', and the pod has no such container", shown(name))
	problem(shares && wholeGPU, "the pod asks for a part of a GPU by an annotation and for nvidia.com/gpu by a limit: remove one")
	if !shares || len(r.Problems) > 0 {
		return r
	}

	request := claimtemplate.Request{Vendor: "nvidia", Memory: mebibytes, Count: count, MPS: mps}
	if hasFraction {
		_, decimals, _ := strings.Cut(fraction, ".")
		request.Fraction, _ = strconv.ParseInt((decimals + "00")[:3], 10, 64)
	}
	template := request.String()
	if mps {
		r.Notes = append(r.Notes, "annotation mps: the claim selects GPUs whose PartitionProfile has the strategy MPS")
	}
	r.Annotations = []string{fractionKey, memoryKey, devicesKey, containerKey, mpsKey}
	claim := Claim{Container: *chosen, Name: kaiClaim, Template: template}
	for _, c := range pod.Spec.ResourceClaims {
		if c.Name != kaiClaim {
			continue
		}
		problem(c.ResourceClaimTemplateName == nil || *c.ResourceClaimTemplateName != template,
			"the pod has a claim of its own with the name tranche, which the claim for its annotations gets: give it another name")
		problem(!uses(chosen.of, kaiClaim),
			"the annotations were not translated, and the pod would run without a GPU: no container has the claim with the name tranche")
		return r
	}
	r.Claims = []Claim{claim}
	return r
}

// uses tells whether a container names a claim.
func uses(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Resources.Claims, func(claim corev1.ResourceClaim) bool { return claim.Name == name })
}
