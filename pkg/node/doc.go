// Package node is the kubelet plugin: it ties GPUs, slices and claims to the
// kubelet and the API server, and shows how it is doing.
//
// node.go starts and stops everything, driver.go answers the kubelet. openhardware.go opens
// the drivers, upgrade.go releases those that are replaced, silent.go goes by GPUs whose
// driver is not there. look.go looks at the GPUs, health.go at how they are, obstacles.go at
// what cannot be had of them now.
//
// follow.go does what the controller asks, nodereport.go and basis.go report how the node
// is, switchtaints.go orders the taints of a switch, reboot.go reboots.
//
// desired.go reads what is wanted of the GPUs, sharing.go decides how they are shared now.
// daemons.go knows whether MPS daemons work on the node and which are dead,
// lookdaemons.go brings those back. devicehealth.go tells the kubelet how the devices are
// that claims hold, metadata.go tells workloads what they have. uninstall.go and leave.go
// end it all.
//
// Imports: api/v1alpha1, pkg/cdi, pkg/claim, pkg/claim/ledger, pkg/claim/plan, pkg/client,
// pkg/durable, pkg/gpu, pkg/hardware, pkg/hardware/mps, pkg/node/drivers,
// pkg/node/handoff, pkg/node/inventory, pkg/node/nodewatch, pkg/node/publisher,
// pkg/node/telemetry, pkg/partition, pkg/profile, pkg/publish, pkg/share, pkg/text,
// pkg/uninstall.
package node
