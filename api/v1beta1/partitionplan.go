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
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.spec.profileName`
// +kubebuilder:printcolumn:name="Target",type=integer,JSONPath=`.status.targetRevision`
// +kubebuilder:printcolumn:name="Step",type=integer,JSONPath=`.status.currentStep`
// +kubebuilder:printcolumn:name="Steps",type=integer,JSONPath=`.status.stepCount`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeCounts.selected`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.nodeCounts.updated`
// +kubebuilder:printcolumn:name="Switching",type=integer,JSONPath=`.status.nodeCounts.switching`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodeCounts.failed`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodeCounts.waiting`,priority=1
// +kubebuilder:printcolumn:name="Set Aside",type=integer,JSONPath=`.status.nodeCounts.setAside`,priority=1
// +kubebuilder:printcolumn:name="Overridden",type=integer,JSONPath=`.status.nodeCounts.overridden`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1
type PartitionPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which nodes get which profile, and how.
	Spec PartitionPlanSpec `json:"spec"`
	// Status is the observed state of the plan. The controller writes it.
	//
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
	// ProfileName is the name of the PartitionProfile.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ProfileName string `json:"profileName"`
	// NodeSelector selects nodes with GPUs by their labels: {} selects all of them. Nodes of the
	// control plane are never selected.
	//
	// +required
	NodeSelector *NodeSelector `json:"nodeSelector,omitempty"`
	// Priority decides between plans that select the same node: the highest wins, then the
	// older plan. Default: 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Strategy defines how the nodes get the profile. Default: the default of each field.
	//
	// +optional
	// +kubebuilder:default={}
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
	// Rejected rejects a revision: the nodes go back to an earlier one. `kubectl tranche rollout
	// undo` sets it.
	//
	// +optional
	Rejected *RejectedRevision `json:"rejected,omitempty"`
}

// NodeSelector selects nodes by their labels. A node must match all of it. An empty one selects all
// nodes.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, size(k) <= 317 && size(self.matchLabels[k]) <= 63)",message="must be names and values of labels",fieldPath=".matchLabels"
type NodeSelector struct {
	// MatchLabels are labels that the node has.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are requirements that the labels of the node meet.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NodeRequirement `json:"matchExpressions,omitempty"`
}

// NodeRequirement is a requirement that a label of a node meets.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="In and NotIn need values, Exists and DoesNotExist have none",fieldPath=".values"
type NodeRequirement struct {
	// Key is the label.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Operator is In or NotIn (the label has, or does not have, one of the values), Exists or
	// DoesNotExist.
	//
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are values of the label, for In and NotIn.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// RolloutStrategy says in which order and how fast nodes get a revision.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || type(self.maxUnavailable) == string || self.maxUnavailable >= 1 && self.maxUnavailable <= 1000000",message="must be 1 to 1000000, or 1% to 100%",fieldPath=".maxUnavailable"
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailures) || type(self.maxFailures) == string || self.maxFailures >= 0 && self.maxFailures <= 1000000",message="must be 0 to 1000000, or 0% to 100%",fieldPath=".maxFailures"
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || self.steps.filter(s, type(s.nodes) == int).transformList(i, s, int(s.nodes) - i).isSorted()",message="nodes includes those of earlier steps, so numbers must increase, and so must percentages",fieldPath=".steps"
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || self.steps.all(i, s, type(s.nodes) == int || self.steps.all(j, t, j <= i || type(t.nodes) == int || size(s.nodes) < size(t.nodes) || size(s.nodes) == size(t.nodes) && s.nodes < t.nodes))",message="nodes includes those of earlier steps, so numbers must increase, and so must percentages",fieldPath=".steps"
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
	// TopologyLimits also limit how many nodes may be switched at once in each zone or rack. All
	// of them hold. Default: none.
	//
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	TopologyLimits []TopologyLimit `json:"topologyLimits,omitempty"`
	// Order is the order of the nodes. Default: emptiest first.
	//
	// +optional
	// +kubebuilder:default={by: Emptiest}
	Order NodeOrder `json:"order,omitempty"`
	// MaxFailures is how many nodes may fail: a number, or a percentage of the plan's nodes.
	// The plan stops when more have failed. Default: 0, also if controller.maxFailures differs.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]|100)%$`
	// +kubebuilder:default=0
	MaxFailures intstr.IntOrString `json:"maxFailures,omitempty"`
	// Windows are the times at which nodes may start, unless a revision is undone. Default: at
	// all times.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=14
	Windows []Window `json:"windows,omitempty"`
	// OnFailure is what happens when the plan stops. With Stop, nodes that have the revision
	// keep it. With Undo, all nodes go back to the last complete revision; without one, to what they
	// would have without the plan. Default: Stop.
	//
	// +optional
	// +kubebuilder:default=Stop
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// RolloutStep is a number of nodes that get a revision before others do.
//
// +kubebuilder:validation:XValidation:rule="type(self.nodes) == string || self.nodes >= 1 && self.nodes <= 1000000",message="must be 1 to 1000000, or 1% to 100%",fieldPath=".nodes"
// +kubebuilder:validation:XValidation:rule="duration(self.soak) >= duration('0s') && duration(self.soak) <= duration('720h')",message="must be 0s to 720h",fieldPath=".soak"
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
	// +kubebuilder:default="0s"
	Soak metav1.Duration `json:"soak,omitempty"`
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
	// TopologyKey is a node label, such as topology.kubernetes.io/zone. Nodes without it count as one
	// zone.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
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
// +kubebuilder:validation:XValidation:rule="self.by == 'Label' ? has(self.labelKey) : !has(self.labelKey)",message="is for by: Label, which needs it",fieldPath=".labelKey"
type NodeOrder struct {
	// By is Emptiest (nodes whose GPUs the fewest claims hold come first) or Label.
	// Default: Emptiest.
	//
	// +optional
	// +kubebuilder:default=Emptiest
	By OrderBy `json:"by,omitempty"`
	// LabelKey is the node label to order by. Numbers are compared as numbers. Nodes without it
	// come last.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
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
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Day `json:"days,omitempty"`
	// Start is the time of the day at which the window starts ("22:00").
	//
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// End is the time of the day at which it ends. An End before Start is on the next day.
	//
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is a name of the IANA time zone database ("Europe/Berlin"). Default: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
	// +kubebuilder:default=UTC
	TimeZone string `json:"timeZone,omitempty"`
}

// Day is a day of the week.
//
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Day string

// OnFailure is what happens when a plan stops because nodes failed.
//
// +kubebuilder:validation:Enum=Stop;Undo
type OnFailure string

// What happens when a plan stops because nodes failed.
const (
	OnFailureStop OnFailure = "Stop"
	OnFailureUndo OnFailure = "Undo"
)

// RevisionReference refers to a revision of a plan. Without the hash, it could mean another one: a plan
// that was created again counts its revisions anew.
type RevisionReference struct {
	// Revision is the number of the revision, beginning with 1.
	//
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`
	// RevisionHash is the hash of the name and the rules of its profile.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	RevisionHash string `json:"revisionHash"`
}

// Means reports whether a reference means a revision. None means nil.
func (r RevisionReference) Means(revision *PlanRevision) bool {
	return revision != nil && revision.RevisionReference == r
}

// StepApproval approves steps. It has no effect on other revisions.
type StepApproval struct {
	// RevisionReference is the approved revision.
	RevisionReference `json:",inline"`
	// Step is the last approved step, beginning with 1.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Step int32 `json:"step"`
}

// AcceptedFailures accepts failures. It has no effect on other revisions.
type AcceptedFailures struct {
	// RevisionReference is the revision with which the nodes failed.
	RevisionReference `json:",inline"`
	// FailedNodeCount is how many failed nodes are accepted. The plan stops again when more than
	// these and maxFailures have failed.
	//
	// +kubebuilder:validation:Minimum=1
	FailedNodeCount int32 `json:"failedNodeCount"`
}

// RejectedRevision rejects a revision. It has no effect on other revisions.
//
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || self.fallback.revision < self.revision",message="must be before the rejected revision",fieldPath=".fallback"
type RejectedRevision struct {
	// RevisionReference is the rejected revision.
	RevisionReference `json:",inline"`
	// Fallback is the revision to go back to. While status.history does not have it, no nodes
	// start. Default: the last complete revision that was not rejected. Without one, the nodes
	// get what they would have without the plan.
	//
	// +optional
	Fallback *RevisionReference `json:"fallback,omitempty"`
}
