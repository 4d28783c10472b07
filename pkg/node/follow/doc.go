// Package follow does what the controller asks of the kubelet plugin's node, and reports in
// the GPUNode how the node is.
//
// follow.go goes by the GPUNode and changes the GPUs, switchtaints.go orders the taints of a
// switch, reboot.go reboots the machine. nodereport.go says how the node is, basis.go what
// plans depend on. gpunodes.go reads and writes the GPUNode.
//
// Imports: api/v1alpha1, pkg/claim, pkg/claim/ledger, pkg/client, pkg/durable, pkg/gpu,
// pkg/hardware, pkg/node/drivers, pkg/node/inventory, pkg/node/nodewatch,
// pkg/node/publisher, pkg/node/telemetry, pkg/partition, pkg/profile, pkg/text.
package follow
