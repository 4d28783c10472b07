package names

// The taints of Tranche.
const (
	// TaintSwitching marks devices of GPUs that a profile switch changes, and devices
	// that the new profile does not offer. The value is the profile, empty for none.
	TaintSwitching = "gpu.tranche.dev/switching"
	// TaintNodeSwitching marks Nodes during a profile switch, where the profile or the
	// cluster requires it. The value is the profile, empty for none.
	TaintNodeSwitching = "tranche.dev/switching"
	// TaintStartup marks new Nodes: they register with it, unless the chart's value
	// `controller.startupTaint` names another. The controller removes it when the node's
	// profile is applied and its devices are published.
	TaintStartup = "tranche.dev/startup"
	// TaintOtherSystem marks devices of a GPU that another system serves. The value names it.
	TaintOtherSystem = "gpu.tranche.dev/other-system"
	// TaintUnhealthy marks all devices of a GPU that has a fatal error or does not respond, a
	// single AMD partition that is missing, and devices that could not be prepared, until
	// the node has prepared one. The value is the cause: xid-79, lost.
	TaintUnhealthy = "gpu.tranche.dev/unhealthy"
	// TaintBusy marks devices that need another mode of their GPU, while a process without
	// a claim blocks the change. The driver may not list that process.
	TaintBusy = "gpu.tranche.dev/busy"
	// TaintDriverUpgrade marks devices of GPUs whose driver is being replaced.
	TaintDriverUpgrade = "gpu.tranche.dev/driver-upgrade"
	// TaintForeignPartition marks devices that overlap a partition that Tranche did not
	// create. The value is its profile and position.
	TaintForeignPartition = "gpu.tranche.dev/foreign-partition"
	// TaintNotOffered marks devices that claims hold and that the node's profile no longer
	// offers.
	TaintNotOffered = "gpu.tranche.dev/not-offered"
	// TaintReserved marks devices that overlap those that a defragmentation frees for a
	// waiting pod. The value identifies the defragmentation.
	TaintReserved = "gpu.tranche.dev/reserved"
	// TaintMonitor marks the device for monitors that each GPU has. It is allocated with
	// `adminAccess` only.
	TaintMonitor = "gpu.tranche.dev/monitor"
)
