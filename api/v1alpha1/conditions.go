package v1alpha1

// The conditions of a GPUNode.
const (
	// ConditionReady: the desired profile is applied.
	ConditionReady = "Ready"
	// ConditionOverruled: labels and spec name different profiles. The message says which
	// one applies.
	ConditionOverruled = "Overruled"
	// ConditionConflict: another system serves GPUs of the node, so Tranche leaves them
	// alone.
	ConditionConflict = "Conflict"
	// ConditionSwitching: a switch is under way.
	ConditionSwitching = "Switching"
)
