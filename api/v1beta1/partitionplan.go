package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PartitionPlan rolls a PartitionProfile, and each later version of it, out to the nodes that
// it selects: in steps, a few nodes at a time. It stops if too many nodes fail. Node labels
// and the specs of GPUNodes have precedence over plans.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pplan
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.spec.profile`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Step",type=integer,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Steps",type=integer,JSONPath=`.status.steps`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.nodes.updated`
// +kubebuilder:printcolumn:name="Switching",type=integer,JSONPath=`.status.nodes.switching`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`,priority=1
// +kubebuilder:printcolumn:name="Set Aside",type=integer,JSONPath=`.status.nodes.setAside`,priority=1
// +kubebuilder:printcolumn:name="Overruled",type=integer,JSONPath=`.status.nodes.overruled`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1
type PartitionPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PartitionPlanSpec `json:"spec"`
	// +optional
	Status PartitionPlanStatus `json:"status,omitempty"`
}

// PartitionPlanList is a list of PartitionPlans.
//
// +kubebuilder:object:root=true
type PartitionPlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PartitionPlan `json:"items"`
}

// PartitionPlanSpec defines which nodes get which profile, and how.
type PartitionPlanSpec struct {
	// Profile is the name of the PartitionProfile.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ProfileName string `json:"profileName"`
	// NodeSelector selects nodes with GPUs by their labels. Default: all of them. Nodes of the
	// control plane are never selected.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="operator must be In or NotIn with values, or Exists or DoesNotExist without",fieldPath=".matchExpressions"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Priority decides between plans that select the same node: the highest wins, then the
	// older plan. Default: 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Strategy defines how the nodes get the profile.
	//
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`
	// Paused is true if no more nodes are to start. Nodes that have started continue.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Approved approves steps of a revision. `kubectl tranche rollout approve` sets it.
	//
	// +optional
	Approved *StepApproval `json:"approved,omitempty"`
	// Accepted accepts failures of a revision, so that a plan that has stopped goes on.
	// `kubectl tranche rollout resume` sets it.
	//
	// +optional
	Accepted *AcceptedFailures `json:"accepted,omitempty"`
	// Undo has the nodes go back to another revision. `kubectl tranche rollout undo` sets it.
	//
	// +optional
	Rejected *RejectedRevision `json:"rejected,omitempty"`
}

// RolloutStrategy says in which order and how fast nodes get a revision.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || type(self.maxUnavailable) == string || self.maxUnavailable >= 1 && self.maxUnavailable <= 1000000",message="must be 1 to 1000000, or 1% to 100%",fieldPath=".maxUnavailable"
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailures) || type(self.maxFailures) == string || self.maxFailures >= 0 && self.maxFailures <= 1000000",message="must be 0 to 1000000, or 0% to 100%",fieldPath=".maxFailures"
type RolloutStrategy struct {
	// Steps begin with few nodes. All other nodes follow the last step. Default: none.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Steps []RolloutStep `json:"steps,omitempty"`
	// MaxUnavailable is how many nodes may be switched at once: a number, or a percentage of
	// the plan's nodes, at least one. Default: the chart's controller.maxUnavailable.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Topology also limits how many nodes may be switched at once in each zone or rack.
	//
	// +optional
	TopologyLimits *TopologyLimit `json:"topologyLimits,omitempty"`
	// Order is the order of the nodes. Default: emptiest first.
	//
	// +optional
	Order *NodeOrder `json:"order,omitempty"`
	// MaxFailures is how many nodes may fail: a number, or a percentage of the plan's nodes.
	// The plan stops when more have failed. Default: 0.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]|100)%$`
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
	// Windows are the times at which nodes may start, unless a revision is undone. Default: at
	// all times.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=14
	Windows []Window `json:"windows,omitempty"`
	// OnFailure is what happens when the plan stops. With Pause, nodes that have the revision
	// keep it. With Undo, they go back to the last complete revision. Default: Pause.
	//
	// +optional
	// +kubebuilder:default=Pause
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// RolloutStep is a number of nodes that get a revision before others do.
//
// +kubebuilder:validation:XValidation:rule="type(self.nodes) == string || self.nodes >= 1 && self.nodes <= 1000000",message="must be 1 to 1000000, or 1% to 100%",fieldPath=".nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.soak) || duration(self.soak) >= duration('0s') && duration(self.soak) <= duration('720h')",message="must be 0s to 720h",fieldPath=".soak"
type RolloutStep struct {
	// Nodes is how many nodes have the revision after the step, those of earlier steps
	// included: a number, or a percentage of the plan's nodes, rounded up.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	Nodes intstr.IntOrString `json:"nodes"`
	// Soak is how long the plan then watches the nodes before the next step. Nodes that
	// become unhealthy in that time, or cannot prepare claims, count as failed. Default: 0s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Soak *metav1.Duration `json:"soak,omitempty"`
	// Approval is true if the plan then waits for an approval, unless it was the last step.
	// Default: false.
	//
	// +optional
	Approval bool `json:"approval,omitempty"`
}

// TopologyLimit limits how many nodes with the same value of a label are switched at once.
//
// +kubebuilder:validation:XValidation:rule="type(self.maxUnavailable) == string || self.maxUnavailable >= 1 && self.maxUnavailable <= 1000000",message="must be 1 to 1000000, or 1% to 100%",fieldPath=".maxUnavailable"
type TopologyLimit struct {
	// Key is a node label, such as topology.kubernetes.io/zone. Nodes without it count as one
	// zone.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	TopologyKey string `json:"topologyKey"`
	// MaxUnavailable is how many of these nodes may be switched at once: a number, or a
	// percentage of them, at least one.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable"`
}

// NodeOrder is the order in which nodes get a revision.
//
// +kubebuilder:validation:XValidation:rule="self.by == 'Label' ? has(self.label) : !has(self.label)",message="is for by: Label, which needs it",fieldPath=".label"
type NodeOrder struct {
	// By is Emptiest (nodes whose GPUs the fewest claims hold come first) or Label.
	// Default: Emptiest.
	//
	// +optional
	// +kubebuilder:default=Emptiest
	By OrderBy `json:"by,omitempty"`
	// Label is the node label to order by. Numbers are compared as numbers. Nodes without it
	// come last.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	LabelKey string `json:"labelKey,omitempty"`
}

// OrderBy is what nodes are ordered by.
//
// +kubebuilder:validation:Enum=Emptiest;Label
type OrderBy string

// What nodes are ordered by.
const (
	OrderByEmptiest OrderBy = "Emptiest"
	OrderByLabel    OrderBy = "Label"
)

// Window is a time at which nodes may start.
//
// +kubebuilder:validation:XValidation:rule="self.start != self.end",message="must differ from start",fieldPath=".end"
type Window struct {
	// Days are the days on which the window starts. Default: all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []Day `json:"days,omitempty"`
	// Start and End are times of the day ("22:00"). An End before Start is on the next day.
	//
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is a name of the IANA time zone database ("Europe/Berlin"). Default: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// Day is a day of the week.
//
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Day string

// OnFailure is what happens when a plan stops because nodes failed.
//
// +kubebuilder:validation:Enum=Pause;Undo
type OnFailure string

// What happens when a plan stops because nodes failed.
const (
	OnFailurePause OnFailure = "Pause"
	OnFailureUndo  OnFailure = "Undo"
)

// StepApproval approves steps. It has no effect once there is another revision.
type StepApproval struct {
	// Revision is the approved revision.
	//
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`
	// Step is the last approved step, beginning with 1.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Step int32 `json:"step"`
}

// AcceptedFailures accepts failures. It has no effect once there is another revision.
type AcceptedFailures struct {
	// Revision is the revision with which the nodes failed.
	//
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`
	// Failures is how many failed nodes are accepted. The plan stops again when more than
	// these and maxFailures have failed.
	//
	// +kubebuilder:validation:Minimum=1
	Failures int32 `json:"failures"`
}

// RevisionUndo rejects a revision. It has no effect once there is another one.
type RejectedRevision struct {
	// Revision is the unwanted revision.
	//
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`
	// To is the revision to go back to. 0 means what the nodes would have without the plan.
	//
	// +kubebuilder:validation:Minimum=0
	FallbackRevision int64 `json:"fallbackRevision"`
}
