// Package node is the kubelet plugin: it ties GPUs, slices and claims to the
// kubelet and the API server, and shows how it is doing.
//
// node.go starts and stops everything, driver.go answers the kubelet. openhardware.go opens
// the drivers, upgrade.go releases those that are replaced, silent.go goes by GPUs whose
// driver is not there. look.go looks at the GPUs, health.go at how they are, obstacles.go at
// what cannot be had of them now.
//
// desired.go reads what is wanted of the GPUs, shapes.go what their profile offers.
// lookdaemons.go starts MPS daemons again that have died. devicehealth.go tells the kubelet
// how the devices are that claims hold, metadata.go tells workloads what they have.
// uninstall.go and leave.go end it all. The packages below do the rest, each for itself.
//
// Imports: api/v1alpha1, pkg/cdi, pkg/claim, pkg/claim/ledger, pkg/claim/plan, pkg/client,
// pkg/gpu, pkg/hardware, pkg/hardware/mps, pkg/node/drivers, pkg/node/follow,
// pkg/node/handoff, pkg/node/hardwarereport, pkg/node/inventory, pkg/node/nodewatch,
// pkg/node/publisher, pkg/node/sharing, pkg/node/telemetry, pkg/partition, pkg/profile,
// pkg/publish, pkg/share, pkg/uninstall.
package node
