package why

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Resource is a kind of objects that an explanation needs, as in a permission.
type Resource string

// The resources. ResourceClaims are those of other namespaces, ResourceOwnClaims those of the pod's.
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
	// Cause is why: "you are not allowed to list nodes".
	Cause string `json:"cause"`
	// Undetermined is what an explanation cannot say without it.
	Undetermined string `json:"undetermined"`
}

var undetermined = map[Resource]string{
	ResourceSlices:         "nothing can be said about the GPUs",
	ResourceClasses:        "it cannot be told which devices would do",
	ResourceRules:          "taints that DeviceTaintRules set are not known, so what looks free may be tainted",
	ResourceClaims:         "holders in other namespaces are not known, so what looks free may be held",
	ResourceOwnClaims:      "it is not known what the pod's claims ask for, and whether they exist",
	ResourceTemplates:      "it cannot be told whether the pod's claim templates exist",
	ResourceNodes:          "the nodes are not known, so their labels, taints and resources are not compared with what the pod asks for",
	ResourceGPUNodes:       "profiles and switches of nodes are not known",
	ResourceEvents:         "events are not known, so nobody's messages are quoted",
	ResourceNodeEvents:     "events of nodes are not known",
	ResourceNamespaces:     "the labels of the namespace are not known",
	ResourcePolicies:       "it cannot be told which projects the chart translates",
	ResourceVolumeClaims:   "it cannot be told whether the pod's volumes are bound",
	ResourceVolumes:        "it cannot be told from which nodes the pod's volumes can be reached",
	ResourceStorageClasses: "it cannot be told whether unbound volumes wait for the pod or the pod for them",
	ResourceQuotas:         "it cannot be told which quota is used up",
	ResourceWorkloads:      "it cannot be told what Kueue waits for",
	ResourcePods:           "it cannot be told which pods there are",
	ResourceReplicaSets:    "pods are found by their labels alone",
	ResourceJobs:           "the jobs are not known",
}

// NotRead makes an Unread.
func NotRead(r Resource, cause string) Unread {
	return Unread{Resource: r, Cause: cause, Undetermined: undetermined[r]}
}

// Note is the sentence for people.
func (u Unread) Note() string { return fmt.Sprintf("%s (%s).", u.Undetermined, u.Cause) }

// has reports whether a resource could not be read.
func has(all []Unread, r Resource) bool {
	return slices.ContainsFunc(all, func(u Unread) bool { return u.Resource == r })
}

// ofDevices are the resources that decide whether devices fit.
var ofDevices = []Resource{ResourceSlices, ResourceClasses, ResourceOwnClaims, ResourceClaims, ResourceRules, ResourceNodes, ResourceGPUNodes,
	ResourceEvents, ResourceVolumeClaims, ResourceVolumes, ResourceStorageClasses}

// matters are the resources that the answer about a pod or an owner depends on, by its state. Pods and owners
// need different ones.
var matters = map[State][]Resource{
	ClaimMissing: {ResourceTemplates, ResourceOwnClaims, ResourceNamespaces, ResourcePolicies, ResourceQuotas, ResourceEvents},
	OtherDriver:  {ResourceEvents},
	Invalid:      {ResourceNodes, ResourceEvents},
	NoDevices:    {ResourceClasses, ResourceNodes, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses},
	// What cannot be read could only take more away.
	NoRoom:          {ResourceClaims, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses, ResourceNodes},
	RoomNow:         ofDevices,
	VolumeNotReady:  ofDevices,
	SchedulerSilent: ofDevices,
	Preempting:      ofDevices,
	Unknown:         append([]Resource{ResourcePods, ResourceReplicaSets, ResourceJobs}, ofDevices...),
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

// lack are those of the resources that could not be read that the answer depends on, with the same in sentences.
// What would not change the answer is not said.
func lack(all []Unread, s State, nodes []fit.Node) (out []Unread, notes []string) {
	// Where devices lack, a switch or the plugin's events may say why.
	also := s == NoRoom && (len(nodes) == 0 || slices.ContainsFunc(nodes, offersLittle))
	for _, u := range all {
		if slices.Contains(matters[s], u.Resource) || also && (u.Resource == ResourceGPUNodes || u.Resource == ResourceNodeEvents) {
			out, notes = append(out, u), append(notes, u.Note())
		}
	}
	return out, notes
}

// offersLittle reports whether a node does not offer what is asked for, held or not.
func offersLittle(n fit.Node) bool {
	return slices.Contains([]fit.Verdict{fit.Lacking, fit.Unusable, fit.Tainted, fit.Switching}, n.Verdict)
}

// doubts say why devices that look free may not be.
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
