package names

// The environment variables in containers. Those of other projects are read by their programs.
const (
	// EnvDevicePrefix is followed by the name of a device in capitals, with underscores.
	EnvDevicePrefix     = "TRANCHE_DEVICE_"
	EnvVisibleDevices   = "NVIDIA_VISIBLE_DEVICES"
	EnvMPSPipeDirectory = "CUDA_MPS_PIPE_DIRECTORY"
	EnvMPSMemoryLimit   = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	EnvMPSComputeLimit  = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	// EnvPortion is the part of a GPU that a share has, for KAI. EnvPortionOlder is its older name.
	EnvPortion      = "GPU_PORTION"
	EnvPortionOlder = "RUNAI_NUM_OF_GPUS"
)

// The condition of a device in the status of a ResourceClaim, and its reasons.
const (
	ClaimConditionReady      = "Ready"
	ClaimReasonPrepared      = "Prepared"
	ClaimReasonPrepareFailed = "PrepareFailed"
)

// The values of LabelCreatedFrom.
const (
	CreatedFromChart     = "Chart"
	CreatedFromConfigMap = "ConfigMap"
	CreatedFromAmount    = "Amount"
)

// DriverUpgradeAll is the value of LabelDriverUpgrade that releases the drivers of all vendors.
const DriverUpgradeAll = "all"

// ValueTrue is the only value of LabelDefragmentation that allows evictions, and of
// LabelRequestGPUResources that adds requests to pods. ValueFalse leaves a namespace out where they
// are added in all.
const (
	ValueTrue  = "true"
	ValueFalse = "false"
)

// PausedValue replaces "true" in a Node's label that starts monitoring pods, while they
// are paused.
const PausedValue = "paused-for-tranche"

// The values of LabelTranslate.
const (
	TranslateKAI  = "kai"
	TranslateHAMi = "hami"
	TranslateNos  = "nos"
)

// The values of the label operation of metrics.
const (
	OperationPrepare   = "prepare"
	OperationUnprepare = "unprepare"
	OperationReconcile = "reconcile"
)

// The values of the label phase of metrics, beside the steps of a claim.
const (
	PhaseLock  = "lock"
	PhasePlan  = "plan"
	PhaseReady = "ready"
	// PhaseUndoPrefix is followed by the step that is undone.
	PhaseUndoPrefix = "undo-"
)

// The values of the label result of metrics.
const (
	OutcomeSucceeded = "Succeeded"
	OutcomeFailed    = "Failed"
	OutcomeAborted   = "Aborted"
	EvictionEvicted  = "Evicted"
	EvictionRefused  = "Refused"
	EvictionForced   = "Forced"
)

// Why a pod that waits gets no event: too many pods differ, or judging it takes too long.
const (
	UnexplainedTooMany = "TooMany"
	UnexplainedTooLong = "TooLong"
)

// The values of the label state of MetricPlanNodes.
const (
	PlanNodeUpdated    = "Updated"
	PlanNodeSwitching  = "Switching"
	PlanNodeWaiting    = "Waiting"
	PlanNodeFailed     = "Failed"
	PlanNodeSetAside   = "SetAside"
	PlanNodeNotReady   = "NotReady"
	PlanNodeOverridden = "Overridden"
)

// The values of the label reason of MetricClocksThrottled, which are those of NVML.
const (
	ThrottledSWPowerCap           = "sw_power_cap"
	ThrottledHWSlowdown           = "hw_slowdown"
	ThrottledSyncBoost            = "sync_boost"
	ThrottledSWThermalSlowdown    = "sw_thermal_slowdown"
	ThrottledHWThermalSlowdown    = "hw_thermal_slowdown"
	ThrottledHWPowerBrakeSlowdown = "hw_power_brake_slowdown"
)

// StateUnknown is, in metrics, the state of a GPUNode that the controller has given none yet.
const StateUnknown = "Unknown"
