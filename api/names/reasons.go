package names

// Reasons of the conditions of a GPUNode that require no action. The reason of
// ConditionSwitching is the State.
const (
	// ReasonApplied: the node follows its profile.
	ReasonApplied = "Applied"
	// ReasonNoGPUs: the node has no GPUs.
	ReasonNoGPUs = "NoGPUs"
	// ReasonSwitching: a switch is under way.
	ReasonSwitching = "Switching"
	// ReasonNone: the condition is false, and there is nothing to report.
	ReasonNone = "None"
)

// Reasons of ConditionReady while the node keeps what is applied, of ConditionOverridden,
// of ConditionConflicted, and of nodes that a plan would not switch.
const (
	// ReasonProfileNotFound: there is no such profile. `kubectl tranche profiles` lists
	// them.
	ReasonProfileNotFound = "ProfileNotFound"
	// ReasonPaused: `spec.paused` of the GPUNode is true. Of a plan: its `spec.paused` is
	// true. `kubectl tranche rollout resume PLAN` continues.
	ReasonPaused = "Paused"
	// ReasonNodeNotFound: the Node is gone: `kubectl delete gpunode NODE`.
	ReasonNodeNotFound = "NodeNotFound"
	// ReasonControlPlaneNotNamed: a control plane node follows only `spec.profileName` of its
	// GPUNode, which is empty.
	ReasonControlPlaneNotNamed = "ControlPlaneNotNamed"
	// ReasonNoReport: the plugin has not reported yet. Check the node's plugin.
	ReasonNoReport = "NoReport"
	// ReasonProtocolUnknown: the node's plugin is newer than the controller. Update the controller.
	ReasonProtocolUnknown = "ProtocolUnknown"
	// ReasonOtherSystem: another system serves GPUs of the node. Remove what the message names.
	ReasonOtherSystem = "OtherSystem"
	// ReasonLabelsDisagree: labels of the node name different profiles. Remove all but one.
	ReasonLabelsDisagree = "LabelsDisagree"
	// ReasonConfigMapInvalid: the ConfigMap with the configuration that the node's label
	// names, or the configuration, is invalid. Correct what the message names.
	ReasonConfigMapInvalid = "ConfigMapInvalid"
	// ReasonPlanOverridden: the node's label or `spec.profileName` names another profile than the
	// plan that selects the node. Remove it for the plan to apply.
	ReasonPlanOverridden = "PlanOverridden"
	// ReasonSpecHolds: labels are ignored on control plane nodes. Set `spec.profileName` of the
	// GPUNode.
	ReasonSpecHolds = "SpecHolds"
	// ReasonOtherPlan: in a plan's forecast, another plan with precedence selects the node.
	ReasonOtherPlan = "OtherPlan"
)

// Reasons of ConditionRolloutPending.
const (
	// ReasonWaitsForPlan: the plan admits the node later. `kubectl tranche rollout status PLAN`
	// says why.
	ReasonWaitsForPlan = "WaitsForPlan"
	// ReasonWaitsForNodes: other nodes are being switched, as many as
	// `controller.maxUnavailable` allows.
	ReasonWaitsForNodes = "WaitsForNodes"
	// ReasonTooManyFailures: more nodes failed with the profile than `controller.maxFailures`
	// or the plan's `maxFailures` allows. Correct the profile or the failed nodes. A plan
	// continues when you resume it.
	ReasonTooManyFailures = "TooManyFailures"
)

// Reasons of the conditions of a PartitionPlan. Those of failed switches are reasons of its
// failed nodes.
const (
	// ReasonRollingOut: nodes are switched.
	ReasonRollingOut = "RollingOut"
	// ReasonSoaking: the nodes of the step are watched before the next step.
	ReasonSoaking = "Soaking"
	// ReasonWaitsForApproval: `kubectl tranche rollout approve PLAN` begins the next step.
	ReasonWaitsForApproval = "WaitsForApproval"
	// ReasonOutsideWindow: nodes start in the next window.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonInvalidWindow: the plan names a time zone that does not exist. Correct it.
	ReasonInvalidWindow = "InvalidWindow"
	// ReasonUndoing: nodes go back to an earlier revision.
	ReasonUndoing = "Undoing"
	// ReasonFallbackNotFound: `status.history` does not have `spec.rejected.fallback`. Remove it for
	// the last complete revision.
	ReasonFallbackNotFound = "FallbackNotFound"
	// ReasonUndone: the newest revision was undone. Change the profile to continue.
	ReasonUndone = "Undone"
	// ReasonBlocked: other nodes failed, are set aside or not ready.
	ReasonBlocked = "Blocked"
	// ReasonComplete: the nodes that can be switched have the target.
	ReasonComplete = "Complete"
	// ReasonNoNodes: the plan has no nodes. Check its nodeSelector and other plans' priority.
	ReasonNoNodes = "NoNodes"
	// ReasonInvalidSelector: the nodeSelector is invalid. The plan keeps its nodes, and starts none.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonNodesFailed: nodes have failed: `status.failedNodes` lists them.
	ReasonNodesFailed = "NodesFailed"
	// ReasonNotReady: the Node is not ready. Check its kubelet.
	ReasonNotReady = "NotReady"
	// ReasonUnhealthy: a GPU of the node became unhealthy after the switch.
	ReasonUnhealthy = "Unhealthy"
	// ReasonClaimsNotPrepared: the node could not prepare claims after the switch.
	ReasonClaimsNotPrepared = "ClaimsNotPrepared"
)

// Reasons of a switch that the controller ends without the profile.
const (
	// ReasonPluginSilent: the plugin did not respond in time. Check the node's plugin.
	ReasonPluginSilent = "PluginSilent"
	// ReasonInvalidReport: the plugin named GPUs that the node does not have. Restart its pod;
	// if it recurs, report a bug.
	ReasonInvalidReport = "InvalidReport"
	// ReasonDrainBlocked: a pod cannot be evicted, so none was: `status.switch.blockers`
	// names it. Change its PodDisruptionBudget, delete it, or set `afterDeadline: Force`.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonTaintFailed: the node could not be tainted. Read the controller's log; check its
	// permissions.
	ReasonTaintFailed = "TaintFailed"
	// ReasonDrainDeadline: pods did not leave in time. Extend `drainDeadline`, or set
	// `afterDeadline: Force`. If others were evicted, the switch is not retried automatically:
	// delete the pods, then set `spec.paused` of the GPUNode to true and to false.
	ReasonDrainDeadline = "DrainDeadline"
	// ReasonRebootRequired: GPUs change only after a reboot, or a reset that was refused. Set
	// `reboot: IfRequired`, or reboot the node. After two reboots: find what fails at boot, then
	// change the profile.
	ReasonRebootRequired = "RebootRequired"
	// ReasonRebootFailed: the node did not come back in time. Check it.
	ReasonRebootFailed = "RebootFailed"
	// ReasonNotVerified: node and API server disagree. Read the message and the plugin's log.
	ReasonNotVerified = "NotVerified"
	// ReasonRollbackFailed: the previous profile could not be restored. Fix what the message
	// names; the next attempt starts from there.
	ReasonRollbackFailed = "RollbackFailed"
	// ReasonSuperseded: another profile was requested meanwhile.
	ReasonSuperseded = "Superseded"
	// ReasonOther: the plugin reported a reason that is not valid in a condition.
	ReasonOther = "Other"
)

// Reasons of a Task that is not Planned or Done. A switch that fails for one has it, too.
const (
	// ReasonProfileDoesNotFit: the profile does not fit the node's GPUs. The message lists each
	// GPU.
	ReasonProfileDoesNotFit = "ProfileDoesNotFit"
	// ReasonForeignPartition: partitions that Tranche did not create are in the way. Remove
	// them, or exclude the GPU from the rule.
	ReasonForeignPartition = "ForeignPartition"
	// ReasonInUse: a claim or a process holds a GPU that has to change. End the process that
	// the message names.
	ReasonInUse = "InUse"
	// ReasonHardwareFailed: the GPU or its driver failed to make a change. Read the message
	// and `dmesg`.
	ReasonHardwareFailed = "HardwareFailed"
)
