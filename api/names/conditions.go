package names

// The conditions of GPUNodes and PartitionPlans. The objects that have one are in
// parentheses.
const (
	// ConditionReady (GPUNode, PartitionPlan): the desired profile is applied. Unknown: the node's
	// plugin has not reported yet. Of a plan: all nodes that can be switched have the target, and
	// none has failed, or it has no nodes.
	ConditionReady = "Ready"
	// ConditionOverridden (GPUNode): labels, spec and plan name different profiles. The
	// message says which one applies.
	ConditionOverridden = "Overridden"
	// ConditionConflicted (GPUNode): another system serves GPUs of the node, so Tranche leaves
	// them alone.
	ConditionConflicted = "Conflicted"
	// ConditionSwitching (GPUNode): a switch is under way.
	ConditionSwitching = "Switching"
	// ConditionRolloutPending (GPUNode): the node will get another profile, or another
	// version of it, when the rollout admits it.
	ConditionRolloutPending = "RolloutPending"
	// ConditionProgressing (PartitionPlan): nodes are switched, or watched in a soak.
	ConditionProgressing = "Progressing"
	// ConditionPaused (PartitionPlan): `spec.paused` is true, so no more nodes start.
	ConditionPaused = "Paused"
	// ConditionStopped (PartitionPlan): too many nodes failed, so no more start:
	// `status.stopped`.
	ConditionStopped = "Stopped"
	// ConditionDegraded (PartitionPlan): nodes have failed.
	ConditionDegraded = "Degraded"
)
