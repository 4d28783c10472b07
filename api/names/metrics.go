package names

// The metrics of the plugin. Each comment is the help text of its metric.
const (
	// MetricAllocatedComputeUnits: Multiprocessors or compute units of a GPU that claims hold.
	MetricAllocatedComputeUnits = "tranche_allocated_compute_units"
	// MetricAllocatedMemory: Memory of a GPU that claims hold.
	MetricAllocatedMemory = "tranche_allocated_memory_bytes"
	// MetricClaimOperationDuration: Histogram: duration of Prepare and Unprepare of a claim.
	MetricClaimOperationDuration = "tranche_claim_operation_duration_seconds"
	// MetricClaimInfo: 1 for each device that a pod holds.
	MetricClaimInfo = "tranche_claim_info"
	// MetricClaimOperationPhaseDuration: Histogram: duration of each phase of Prepare and Unprepare.
	MetricClaimOperationPhaseDuration = "tranche_claim_operation_phase_duration_seconds"
	// MetricFragmentation: Part of the free memory that a profile cannot use, 0 to 1; see below.
	MetricFragmentation = "tranche_fragmentation_ratio"
	// MetricFreeComputeUnits: Multiprocessors or compute units of a GPU that no claim holds.
	MetricFreeComputeUnits = "tranche_free_compute_units"
	// MetricFreeDevices: How many more devices of a profile fit on a GPU, if no others are
	// allocated.
	MetricFreeDevices = "tranche_free_devices"
	// MetricFreeMemory: Memory of a GPU that no claim holds.
	MetricFreeMemory = "tranche_free_memory_bytes"
	// MetricGPUHealthy: 1 for a healthy GPU, 0 for others, with the cause in the taint unhealthy, or missing.
	MetricGPUHealthy = "tranche_gpu_healthy"
	// MetricGPUUnavailable: 1 for each reason why no device of a GPU can be allocated: a taint, or withheld.
	MetricGPUUnavailable = "tranche_gpu_unavailable"
	// MetricPreparedDevices: Devices that claims hold.
	MetricPreparedDevices = "tranche_prepared_devices"
	// MetricPublishErrors: Failed attempts to publish the node's ResourceSlices.
	MetricPublishErrors = "tranche_publish_errors_total"
	// MetricPublishedDevices: Devices that the node publishes, overlapping ones included.
	MetricPublishedDevices = "tranche_published_devices"
	// MetricReconcileFindings: Repairs by the reconciler; reasons as in the events.
	MetricReconcileFindings = "tranche_reconcile_findings_total"
	// MetricShareAllocatedRatio: Fraction that a claim was allocated from a share, 0 to 1.
	MetricShareAllocatedRatio = "tranche_share_allocated_ratio"
	// MetricShareInfo: 1 for each share that a claim holds.
	MetricShareInfo = "tranche_share_info"
	// MetricShareAllocatedMemory: Memory that a claim was allocated from a share.
	MetricShareAllocatedMemory = "tranche_share_allocated_memory_bytes"
	// MetricShareMemoryLimit: Memory limit of a claim; absent where nothing enforces one.
	MetricShareMemoryLimit = "tranche_share_memory_limit_bytes"
)

// The metrics of what GPUs, partitions and shares use.
const (
	// MetricClocksThrottled: 1 while a reason lowers the clocks, otherwise 0.
	MetricClocksThrottled = "tranche_clocks_throttled"
	// MetricComputeActive: Compute units that worked: average, on AMD at the moment.
	MetricComputeActive = "tranche_compute_active_ratio"
	// MetricECCCorrected: Corrected memory errors since the driver was loaded.
	MetricECCCorrected = "tranche_ecc_corrected_errors_total"
	// MetricECCUncorrected: Uncorrected memory errors since the driver was loaded.
	MetricECCUncorrected = "tranche_ecc_uncorrected_errors_total"
	// MetricEngineActive: Time in which anything ran, average.
	MetricEngineActive = "tranche_engine_active_ratio"
	// MetricGPUInfo: 1 for each GPU.
	MetricGPUInfo = "tranche_gpu_info"
	// MetricMemoryAccess: Time in which memory was accessed.
	MetricMemoryAccess = "tranche_memory_access_ratio"
	// MetricMemoryBandwidth: Memory bandwidth that was used, average.
	MetricMemoryBandwidth = "tranche_memory_bandwidth_ratio"
	// MetricMemoryTotal: Memory; of a share, what was allocated.
	MetricMemoryTotal = "tranche_memory_total_bytes"
	// MetricMemoryUsed: Memory in use, without what the driver reserves.
	MetricMemoryUsed = "tranche_memory_used_bytes"
	// MetricPower: Power of a GPU.
	MetricPower = "tranche_power_watts"
	// MetricProcesses: Processes that use the device.
	MetricProcesses = "tranche_processes"
	// MetricTensorActive: Time in which tensor cores worked, average.
	MetricTensorActive = "tranche_tensor_active_ratio"
	// MetricUtilization: Time in which anything ran.
	MetricUtilization = "tranche_utilization_ratio"
)

// The metrics of the controller.
const (
	// MetricGPUNodeNotReadyTime: Unix time since when the desired profile is not applied
	// on a node; absent if it is, or if the node only waits for other nodes.
	MetricGPUNodeNotReadyTime = "tranche_gpu_node_not_ready_timestamp_seconds"
	// MetricGPUNodesNotReady: Nodes whose desired profile is not applied, by the reason of the
	// condition Ready.
	MetricGPUNodesNotReady = "tranche_gpu_nodes_not_ready"
	// MetricGPUNodesOverdue: Nodes whose switch has passed the deadline of its state.
	MetricGPUNodesOverdue = "tranche_gpu_nodes_overdue"
	// MetricGPUNodes: Nodes with GPUs by the state of their switch; Unknown: none yet.
	MetricGPUNodes = "tranche_gpu_nodes"
	// MetricPlanNodes: Nodes of a PartitionPlan, by what status.nodeCounts counts.
	MetricPlanNodes = "tranche_plan_nodes"
	// MetricPlanStopped: 1 if the PartitionPlan has stopped because nodes failed, otherwise 0.
	MetricPlanStopped = "tranche_plan_stopped"
	// MetricDefragmentations: Finished defragmentations: Succeeded or Aborted.
	MetricDefragmentations = "tranche_defragmentations_total"
	// MetricDefragmentationEvictions: Evictions that made room for waiting pods: Evicted, Refused.
	MetricDefragmentationEvictions = "tranche_defragmentation_evictions_total"
	// MetricSwitchDuration: Histogram: duration of switches, without waiting for other
	// nodes.
	MetricSwitchDuration = "tranche_switch_duration_seconds"
	// MetricSwitchEvictions: Evictions of pods: Evicted, Refused, Forced.
	MetricSwitchEvictions = "tranche_switch_evictions_total"
	// MetricSwitchStateDuration: Histogram: time that nodes spent in each state of a switch.
	MetricSwitchStateDuration = "tranche_switch_state_duration_seconds"
	// MetricSwitches: Finished switches.
	MetricSwitches = "tranche_switches_total"
	// MetricUnplannedSwitchingNodesLimit: Nodes without a PartitionPlan that may be in a switch at once.
	MetricUnplannedSwitchingNodesLimit = "tranche_unplanned_switching_nodes_limit"
	// MetricUnplannedSwitchingNodes: Nodes without a PartitionPlan that are in a switch, as maxUnavailable counts them.
	MetricUnplannedSwitchingNodes = "tranche_unplanned_switching_nodes"
	// MetricPendingClaims: Claims made for pods that are not allocated, of all DRA drivers.
	MetricPendingClaims = "tranche_pending_claims"
	// MetricPendingPods: Pods that wait because of their claims, by the reason of their event.
	MetricPendingPods = "tranche_pending_pods"
	// MetricPendingPodsUnexplained: Pods that wait and get no event: too many differ (TooMany), or judging them takes too long (TooLong).
	MetricPendingPodsUnexplained = "tranche_pending_pods_unexplained"
	// MetricPendingPodEvents: Events that say why a pod waits.
	MetricPendingPodEvents = "tranche_pending_pod_events_total"
	// MetricPendingPodRequests: Requests to the API server for these events.
	MetricPendingPodRequests = "tranche_pending_pod_api_requests_total"
	// MetricPendingClaimsByDeviceClass: Claims of pods that are not allocated, by DeviceClass; empty: it does not exist.
	MetricPendingClaimsByDeviceClass = "tranche_pending_claims_by_device_class"
)
