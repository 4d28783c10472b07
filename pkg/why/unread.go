package why

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Resource is a kind of objects that an explanation needs.
type Resource struct {
	// name is as `kubectl auth can-i` takes it.
	name string
	// own are those of the namespace that is explained. The others are those of the cluster.
	own bool
	// undetermined is what cannot be determined without them.
	undetermined string
}

// The resources. ResourceClaims are claims of other namespaces, ResourceOwnClaims those of the pod's.
var (
	ResourceSlices         = Resource{"resourceslices.resource.k8s.io", false, "nothing can be said about the GPUs"}
	ResourceClasses        = Resource{"deviceclasses.resource.k8s.io", false, "it cannot be determined which devices match"}
	ResourceRules          = Resource{"devicetaintrules.resource.k8s.io", false, "taints that DeviceTaintRules set are not known, so what looks free may be tainted"}
	ResourceClaims         = Resource{"resourceclaims.resource.k8s.io", false, "holders in other namespaces are not known, so what looks free may be held"}
	ResourceOwnClaims      = Resource{"resourceclaims.resource.k8s.io", true, "it is not known what the pod's claims ask for, and whether they exist"}
	ResourceTemplates      = Resource{"resourceclaimtemplates.resource.k8s.io", true, "it cannot be determined whether the pod's claim templates exist"}
	ResourceNodes          = Resource{"nodes", false, "the nodes are not known, so their labels, taints and resources are not compared with what the pod asks for"}
	ResourceGPUNodes       = Resource{"gpunodes.tranche.dev", false, "profiles and switches of nodes are not known"}
	ResourceEvents         = Resource{"events", true, "events are not known, so nobody's messages are quoted"}
	ResourceNodeEvents     = Resource{"events", false, "events of nodes are not known"}
	ResourceNamespaces     = Resource{"namespaces", false, "the labels of the namespace are not known"}
	ResourcePolicies       = Resource{"validatingadmissionpolicybindings.admissionregistration.k8s.io", false, "it cannot be determined which projects the chart translates"}
	ResourceVolumeClaims   = Resource{"persistentvolumeclaims", true, "it cannot be determined whether the pod's volumes are bound"}
	ResourceVolumes        = Resource{"persistentvolumes", false, "it cannot be determined from which nodes the pod's volumes can be reached"}
	ResourceStorageClasses = Resource{"storageclasses.storage.k8s.io", false, "it cannot be determined whether unbound volumes wait for the pod or the pod for them"}
	ResourceQuotas         = Resource{"resourcequotas", true, "it cannot be determined which quota is used up"}
	ResourceWorkloads      = Resource{"workloads.kueue.x-k8s.io", true, "it cannot be determined what Kueue waits for"}
	ResourceRequests       = Resource{"pods", false, "it cannot be determined whether requests of other pods for GPU memory and compute keep the pod off nodes"}
	ResourcePods           = Resource{"pods", true, "it cannot be determined which pods there are"}
	ResourceReplicaSets    = Resource{"replicasets.apps", true, "pods are found by their labels alone"}
	ResourceJobs           = Resource{"jobs.batch", true, "the jobs are not known"}
)

// String returns the resource as `kubectl auth can-i` takes it.
func (r Resource) String() string { return r.name }

// Verb returns the verb of RBAC by which the resource is read.
func (r Resource) Verb() string {
	if r == ResourceNamespaces || r == ResourceVolumes {
		return "get"
	}
	return "list"
}

// NotRead says why a resource could not be read, for an explanation of the namespace.
func NotRead(r Resource, namespace, message string) text.Unread {
	if !r.own {
		namespace = ""
	}
	return text.Unread{Verb: r.Verb(), Resource: r.name, Namespace: namespace, Message: message, Consequence: r.undetermined}
}

// Denied says that the user may not read a resource.
func Denied(r Resource, namespace string) text.Unread {
	return NotRead(r, namespace, "").Refused()
}

// is reports whether it is the resource that could not be read.
func (r Resource) is(u text.Unread) bool { return u.Resource == r.name && r.own == (u.Namespace != "") }

// has reports whether a resource could not be read.
func has(all []text.Unread, r Resource) bool { return slices.ContainsFunc(all, r.is) }

// deviceResources are the resources that decide whether devices fit.
var deviceResources = []Resource{ResourceSlices, ResourceClasses, ResourceOwnClaims, ResourceClaims, ResourceRules, ResourceNodes, ResourceGPUNodes,
	ResourceEvents, ResourceVolumeClaims, ResourceVolumes, ResourceStorageClasses, ResourceRequests}

// matters are the resources that the explanation of a pod or an owner depends on, by its state.
var matters = map[State][]Resource{
	ClaimMissing: {ResourceTemplates, ResourceOwnClaims, ResourceNamespaces, ResourcePolicies, ResourceQuotas, ResourceEvents},
	OtherDriver:  {ResourceEvents},
	Invalid:      {ResourceNodes, ResourceEvents},
	NoDevices:    {ResourceClasses, ResourceNodes, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses},
	// Other unread objects could only reduce the room further. Without the first three, the controller's event
	// says that there is none.
	NoRoom:          {ResourceClasses, ResourceSlices, ResourceOwnClaims, ResourceClaims, ResourceEvents, ResourceVolumeClaims, ResourceStorageClasses, ResourceNodes},
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

// lack returns what the explanation depends on.
func lack(all []text.Unread, s State, nodes []fit.Node) (out []text.Unread) {
	// If devices are missing, a switch or the plugin's events may explain it.
	needed := matters[s]
	if s == NoRoom && (len(nodes) == 0 || slices.ContainsFunc(nodes, offersLittle)) {
		needed = append(slices.Clip(needed), ResourceGPUNodes, ResourceNodeEvents)
	}
	for _, u := range all {
		if slices.ContainsFunc(needed, func(r Resource) bool { return r.is(u) }) {
			out = append(out, u)
		}
	}
	return out
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
		{ResourceRequests, "other pods may request the GPU memory and compute of the nodes"},
		{ResourceVolumeClaims, "its volumes may not be ready"},
		{ResourceVolumes, "its volumes may be bound to other nodes"},
	} {
		if has(in.Unread, d.resource) || d.resource == ResourceClaims && in.Partial {
			out = append(out, d.text)
		}
	}
	return out
}
