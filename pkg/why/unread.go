package why

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Resource is a kind of objects that an explanation needs, named as in RBAC rules.
type Resource string

// The resources. ResourceClaims are claims of other namespaces, ResourceOwnClaims those of the pod's.
const (
	ResourceSlices         Resource = "resourceslices.resource.k8s.io"
	ResourceClasses        Resource = "deviceclasses.resource.k8s.io"
	ResourceRules          Resource = "devicetaintrules.resource.k8s.io"
	ResourceClaims         Resource = "resourceclaims.resource.k8s.io"
	ResourceOwnClaims      Resource = "resourceclaims.resource.k8s.io of the namespace"
	ResourceTemplates      Resource = "resourceclaimtemplates.resource.k8s.io"
	ResourceNodes          Resource = "nodes"
	ResourceGPUNodes       Resource = "gpunodes.tranche.dev"
	ResourceEvents         Resource = "events"
	ResourceNodeEvents     Resource = "events of nodes"
	ResourceNamespaces     Resource = "namespaces"
	ResourcePolicies       Resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	ResourceVolumeClaims   Resource = "persistentvolumeclaims"
	ResourceVolumes        Resource = "persistentvolumes"
	ResourceStorageClasses Resource = "storageclasses.storage.k8s.io"
	ResourceQuotas         Resource = "resourcequotas"
	ResourceWorkloads      Resource = "workloads.kueue.x-k8s.io"
	ResourcePods           Resource = "pods"
	ResourceReplicaSets    Resource = "replicasets.apps"
	ResourceJobs           Resource = "jobs.batch"
)

// Unread is a kind of objects that could not be read.
type Unread struct {
	Resource Resource `json:"resource"`
	// Cause is the reason: "you are not allowed to list nodes".
	Cause string `json:"message"`
	// Undetermined is what cannot be determined without it.
	Undetermined string `json:"consequence"`
}

var undetermined = map[Resource]string{
	ResourceSlices:         "nothing can be said about the GPUs",
	ResourceClasses:        "it cannot be determined which devices match",
	ResourceRules:          "taints that DeviceTaintRules set are not known, so what looks free may be tainted",
	ResourceClaims:         "holders in other namespaces are not known, so what looks free may be held",
	ResourceOwnClaims:      "it is not known what the pod's claims ask for, and whether they exist",
	ResourceTemplates:      "it cannot be determined whether the pod's claim templates exist",
	ResourceNodes:          "the nodes are not known, so their labels, taints and resources are not compared with what the pod asks for",
	ResourceGPUNodes:       "profiles and switches of nodes are not known",
	ResourceEvents:         "events are not known, so nobody's messages are quoted",
	ResourceNodeEvents:     "events of nodes are not known",
	ResourceNamespaces:     "the labels of the namespace are not known",
	ResourcePolicies:       "it cannot be determined which projects the chart translates",
	ResourceVolumeClaims:   "it cannot be determined whether the pod's volumes are bound",
	ResourceVolumes:        "it cannot be determined from which nodes the pod's volumes can be reached",
	ResourceStorageClasses: "it cannot be determined whether unbound volumes wait for the pod or the pod for them",
	ResourceQuotas:         "it cannot be determined which quota is used up",
	ResourceWorkloads:      "it cannot be determined what Kueue waits for",
	ResourcePods:           "it cannot be determined which pods there are",
	ResourceReplicaSets:    "pods are found by their labels alone",
	ResourceJobs:           "the jobs are not known",
}

// NotRead returns the Unread of a resource.
func NotRead(r Resource, cause string) Unread {
	return Unread{Resource: r, Cause: cause, Undetermined: undetermined[r]}
}

// Note returns the sentence for users.
func (u Unread) Note() string { return fmt.Sprintf("%s (%s).", u.Undetermined, u.Cause) }

// has reports whether a resource could not be read.
func has(all []Unread, r Resource) bool {
	return slices.ContainsFunc(all, func(u Unread) bool { return u.Resource == r })
}

// deviceResources are the resources that decide whether devices fit.
var deviceResources = []Resource{ResourceSlices, ResourceClasses, ResourceOwnClaims, ResourceClaims, ResourceRules, ResourceNodes, ResourceGPUNodes,
	ResourceEvents, ResourceVolumeClaims, ResourceVolumes, ResourceStorageClasses}

// matters are the resources that the explanation of a pod or an owner depends on, by its state.
var matters = map[State][]Resource{
	ClaimMissing: {ResourceTemplates, ResourceOwnClaims, ResourceNamespaces, ResourcePolicies, ResourceQuotas, ResourceEvents},
	OtherDriver:  {ResourceEvents},
	Invalid:      {ResourceNodes, ResourceEvents},
	NoDevices:    {ResourceClasses, ResourceNodes, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses},
	// Other unread objects could only reduce the room further.
	NoRoom:          {ResourceClaims, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses, ResourceNodes},
	RoomNow:         deviceResources,
	VolumeNotReady:  deviceResources,
	SchedulerSilent: deviceResources,
	Preempting:      deviceResources,
	Unknown:         append([]Resource{ResourcePods, ResourceReplicaSets, ResourceJobs}, deviceResources...),
	Gated:           {ResourceWorkloads, ResourceEvents},
	Starting:        {ResourceOwnClaims, ResourceEvents},
	Terminating:     {ResourceOwnClaims, ResourceEvents, ResourceNodeEvents},

	Suspended:   {ResourceWorkloads},
	NotAdmitted: {ResourceWorkloads, ResourceEvents},
	PodsRefused: {ResourceQuotas},
	NoPods:      {ResourceEvents, ResourceQuotas, ResourceReplicaSets, ResourceJobs},
	Waiting:     {ResourceReplicaSets, ResourceJobs, ResourceEvents},
	Unused:      {ResourcePods},
	Allocated:   {ResourcePods},
}

// lack returns the unread resources that the explanation depends on, and the same as sentences.
func lack(all []Unread, s State, nodes []fit.Node) (out []Unread, notes []string) {
	// If devices are missing, a switch or the plugin's events may explain it.
	also := s == NoRoom && (len(nodes) == 0 || slices.ContainsFunc(nodes, offersLittle))
	for _, u := range all {
		if slices.Contains(matters[s], u.Resource) || also && (u.Resource == ResourceGPUNodes || u.Resource == ResourceNodeEvents) {
			out, notes = append(out, u), append(notes, u.Note())
		}
	}
	return out, notes
}

// offersLittle reports whether a node does not offer the requested devices, held or not.
func offersLittle(n fit.Node) bool {
	return slices.Contains([]fit.Verdict{fit.Lacking, fit.Unusable, fit.Tainted, fit.Switching}, n.Verdict)
}

// doubts returns the reasons for which devices that look free may not be.
func (in *Input) doubts() []string {
	var out []string
	for _, d := range []struct {
		resource Resource
		text     string
	}{
		{ResourceClaims, "claims of other namespaces may hold the devices"},
		{ResourceRules, "DeviceTaintRules may taint them"},
		{ResourceNodes, "labels, taints or resources of the nodes may keep the pod away"},
		{ResourceVolumeClaims, "its volumes may not be ready"},
		{ResourceVolumes, "its volumes may be bound to other nodes"},
	} {
		if has(in.Unread, d.resource) || d.resource == ResourceClaims && in.Partial {
			out = append(out, d.text)
		}
	}
	return out
}
