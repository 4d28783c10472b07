package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// remedyMissing adds the remedies for a pod with a missing claim.
func (e *Explanation) remedyMissing(in *Input) {
	if in.templatesExist() {
		// kube-controller-manager does not watch templates for this (pkg/controller/resourceclaim).
		e.remedy("wait: kube-controller-manager tries again, doubling the wait each time, up to 17 minutes. Changing the pod triggers a retry:",
			fmt.Sprintf("kubectl annotate pod %s -n %s --overwrite retried=\"$(date)\"", e.Pod, e.Namespace))
	}
	if !slices.ContainsFunc(e.Quotes, func(q Quote) bool { return q.Reason == "FailedResourceClaimCreation" }) {
		if len(e.Remedies) == 0 {
			e.remedy("create what is missing; the pod continues automatically.", "")
		}
		return
	}
	if used := exceeded(in.Quotas, in.templateQuota()); len(used) > 0 {
		e.Summary += " " + quotaText(used)
		e.Exceeded = used
		e.remedy("delete a pod that uses up the quota. Who holds devices:", "kubectl tranche -n "+e.Namespace)
	}
	if in.Templates != nil && WaitsForClaims(in.Pod) && !in.templatesExist() {
		e.remedy("create the ResourceClaimTemplate, or name one that exists; the claim is created automatically. To see them:", "kubectl get resourceclaimtemplates -n "+e.Namespace)
		return
	}
	e.remedy("fix what the message says; the claim is created again automatically. If a quota is exceeded, see:", "kubectl describe quota -n "+e.Namespace)
}

// templatesExist reports whether the pod waits for claims from templates that all exist.
func (in *Input) templatesExist() bool {
	for _, c := range in.Pod.Spec.ResourceClaims {
		named := func(t resourceapi.ResourceClaimTemplate) bool {
			return t.Name == ptr.Deref(c.ResourceClaimTemplateName, "")
		}
		if c.ResourceClaimTemplateName != nil && !slices.ContainsFunc(in.Templates, named) {
			return false
		}
	}
	return WaitsForClaims(in.Pod)
}

// addVolumes adds the volumes that the pod waits for. Devices do not help until all are ready.
func (e *Explanation) addVolumes(volumes []demand.Volume) {
	var waits []string
	claims := ""
	for _, v := range volumes {
		claim := "the PersistentVolumeClaim " + v.Claim
		switch v.State {
		case demand.VolumeMissing:
			waits = append(waits, claim+" does not exist")
		case demand.VolumeTerminating:
			waits = append(waits, claim+" is being deleted")
		case demand.VolumeLost:
			waits = append(waits, "the volume of "+claim+" is lost")
		case demand.VolumeUnbound:
			waits = append(waits, claim+" is not bound to a volume")
			if v.Class == "" {
				waits[len(waits)-1] += ", and names no StorageClass"
			}
		case demand.VolumeReady, demand.VolumeUnknown:
			continue
		}
		claims += " " + v.Claim
	}
	if len(waits) == 0 {
		return
	}
	also := ""
	if e.State == NoRoom || e.State == Invalid || e.State == ClaimMissing {
		also = " Besides: " + e.Summary
	} else {
		e.Remedies = nil
	}
	e.say(VolumeNotReady, "%s waits for its volumes: %s.%s", e.who(), strings.Join(waits, "; "), also)
	e.Answer = ""
	e.Remedies = slices.Insert(e.Remedies, 0, fit.Remedy{
		Text:    "create what is missing, or see what the volumes wait for; the pod continues automatically:",
		Command: "kubectl describe pvc -n " + e.Namespace + claims,
	})
}

// noDevices explains a pod that requests no devices, as far as is known.
func (e *Explanation) noDevices(in *Input, unserved []string) {
	resources := strings.Join(unserved, " and ")
	switch {
	case len(unserved) == 0:
		e.State = NoDevices
		e.Summary = fmt.Sprintf("%s/%s has no node yet, and Tranche is not the cause: it requests no device.", e.Namespace, e.Pod)
	case in.Classes == nil:
		e.State = Unknown
		e.Summary = fmt.Sprintf("%s/%s has no node yet. It asks for %s. Without the DeviceClasses it cannot be determined whether that is a device, so the cause is unknown.", e.Namespace, e.Pod, resources)
		e.remedyClasses()
	case has(in.Unread, ResourceNodes):
		e.State = Unknown
		e.Summary = fmt.Sprintf("%s/%s has no node yet. It asks for %s, for which there is no DeviceClass; without the nodes it cannot be determined whether a device plugin serves it.", e.Namespace, e.Pod, resources)
		e.remedy("ask an administrator for the role tranche-user-nodes, or to run this command.", "")
	default:
		e.unserved(in, unserved)
	}
}

// unserved explains a pod that requests resources that nothing serves.
func (e *Explanation) unserved(in *Input, resources []string) {
	e.say(Invalid, "%s asks for %s, for which there is neither a DeviceClass nor a device plugin", e.who(), strings.Join(resources, " and "))
	e.Summary += strict.DidYouMean(resources[0], slices.Collect(maps.Values(extendedResources(in.Classes))))
	if slices.ContainsFunc(resources, ofHAMi) {
		e.remedyTranslation(in, names.TranslateHAMi)
	}
	e.remedy("to translate it to a claim, if there is one for it:", "kubectl tranche convert -f FILE")
	e.remedy("see which resources there are:", "kubectl get deviceclass -o custom-columns=CLASS:.metadata.name,RESOURCE:.spec.extendedResourceName")
}

// ofHAMi reports whether pods of HAMi request parts of GPUs by a resource, such as nvidia.com/gpumem.
func ofHAMi(resource string) bool {
	_, name, _ := strings.Cut(resource, "/")
	return strings.HasPrefix(name, "gpumem") || strings.HasPrefix(name, "gpucores")
}

// unservedResources returns the extended resources of the pod that no device plugin serves. If the
// classes are known, only resources of GPU vendors count. Otherwise any of them may belong to a class.
func unservedResources(in *Input) []string {
	unserved := map[string]bool{}
	served := slices.Collect(maps.Values(extendedResources(in.Classes)))
	for _, c := range demand.Containers(in.Pod) {
		for name := range c.Resources.Requests {
			extended := strings.Contains(string(name), "/")
			_, ofGPU := gpu.VendorOf(string(name))
			plugin := slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool { _, ok := n.Status.Allocatable[name]; return ok })
			if extended && !plugin && (ofGPU || in.Classes == nil) && !slices.Contains(served, string(name)) {
				unserved[string(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(unserved))
}

// WaitsForKueue reports whether a pod has one of Kueue's scheduling gates.
func WaitsForKueue(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return isKueueGate(g.Name) })
}

// WaitsForClaims reports whether claims of a pod are still to be created from templates.
func WaitsForClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
		return c.ResourceClaimTemplateName != nil &&
			!slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	})
}
