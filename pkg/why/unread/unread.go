package unread

import "fmt"

// Resource is a kind of objects that an explanation needs, as in a permission.
type Resource string

// The resources. Claims are those of other namespaces, OwnClaims those of the pod's.
const (
	Slices         Resource = "resourceslices.resource.k8s.io"
	Classes        Resource = "deviceclasses.resource.k8s.io"
	Rules          Resource = "devicetaintrules.resource.k8s.io"
	Claims         Resource = "resourceclaims.resource.k8s.io"
	OwnClaims      Resource = "resourceclaims.resource.k8s.io of the namespace"
	Templates      Resource = "resourceclaimtemplates.resource.k8s.io"
	Nodes          Resource = "nodes"
	GPUNodes       Resource = "gpunodes.tranche.dev"
	Events         Resource = "events"
	NodeEvents     Resource = "events of nodes"
	Namespaces     Resource = "namespaces"
	Policies       Resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	VolumeClaims   Resource = "persistentvolumeclaims"
	Volumes        Resource = "persistentvolumes"
	StorageClasses Resource = "storageclasses.storage.k8s.io"
	Quotas         Resource = "resourcequotas"
	Workloads      Resource = "workloads.kueue.x-k8s.io"
	Pods           Resource = "pods"
	ReplicaSets    Resource = "replicasets.apps"
	Jobs           Resource = "jobs.batch"
)

// Kind is a kind of objects that could not be read.
type Kind struct {
	Resource Resource `json:"resource"`
	// Cause is why: "you are not allowed to list nodes".
	Cause string `json:"cause"`
	// Undetermined is what an explanation cannot say without it.
	Undetermined string `json:"undetermined"`
}

var undetermined = map[Resource]string{
	Slices:         "nothing can be said about the GPUs",
	Classes:        "it cannot be told which devices would do",
	Rules:          "taints that DeviceTaintRules set are not known, so what looks free may be tainted",
	Claims:         "holders in other namespaces are not known, so what looks free may be held",
	OwnClaims:      "it is not known what the pod's claims ask for, and whether they exist",
	Templates:      "it cannot be told whether the pod's claim templates exist",
	Nodes:          "the nodes are not known, so their labels, taints and resources are not compared with what the pod asks for",
	GPUNodes:       "profiles and switches of nodes are not known",
	Events:         "events are not known, so nobody's messages are quoted",
	NodeEvents:     "events of nodes are not known",
	Namespaces:     "the labels of the namespace are not known",
	Policies:       "it cannot be told which projects the chart translates",
	VolumeClaims:   "it cannot be told whether the pod's volumes are bound",
	Volumes:        "it cannot be told from which nodes the pod's volumes can be reached",
	StorageClasses: "it cannot be told whether unbound volumes wait for the pod or the pod for them",
	Quotas:         "it cannot be told which quota is used up",
	Workloads:      "it cannot be told what Kueue waits for",
	Pods:           "it cannot be told which pods there are",
	ReplicaSets:    "pods are found by their labels alone",
	Jobs:           "the jobs are not known",
}

// New makes a Kind.
func New(r Resource, cause string) Kind {
	return Kind{Resource: r, Cause: cause, Undetermined: undetermined[r]}
}

// Note is the sentence for people.
func (u Kind) Note() string { return fmt.Sprintf("%s (%s).", u.Undetermined, u.Cause) }
