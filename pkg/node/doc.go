// Package node is the kubelet plugin: it ties GPUs, slices and claims to the
// kubelet and the API server, and shows how it is doing.
//
// node.go starts and stops everything, driver.go answers the kubelet. vendor.go is a
// vendor whose driver is there, hardware.go makes one of the GPUs of all, and
// openhardware.go opens their drivers. look.go looks at the GPUs, health.go at how
// they are, obstacles.go at what cannot be had of them now, gpus.go keeps what is
// known of them, publisher.go publishes it.
//
// desired.go reads what is wanted of the GPUs, sharing.go decides how they are
// shared now, gpusettings.go sets them for it. daemons.go knows whether MPS daemons
// work on the node and which are dead, lookdaemons.go brings those back. follow.go does
// what the controller asks. devicehealth.go tells the kubelet how the devices are that
// claims hold, claimstatus.go, metadata.go and sharemetrics.go tell others what they have.
//
// owners.go, watch.go and processes.go look out for other systems that serve the same
// GPUs, features.go and restrict.go for a cluster that keeps less than we publish,
// nodewatch.go for what is said of the node. uninstall.go and leave.go end it all.
//
// Imports: api/v1alpha1, pkg/cdi, pkg/claim, pkg/claim/ledger, pkg/claim/plan, pkg/client,
// pkg/durable, pkg/gpu, pkg/hardware, pkg/hardware/mps, pkg/node/handoff,
// pkg/partition, pkg/profile, pkg/publish, pkg/share, pkg/text, pkg/uninstall.
package node
