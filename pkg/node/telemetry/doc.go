// Package telemetry reports what the kubelet plugin does: events, metrics, and the status of
// claims. The plugin does not depend on any of them.
//
// events.go and severalmig.go write events about the node and its pods, metrics.go,
// sharemetrics.go and freemetrics.go serve metrics, claimstatus.go writes the devices in the
// status of claims.
//
// sampler.go measures at intervals how much the GPUs are used; attribution.go finds out who held
// what all the while, so that nothing that was measured of one claim is reported of another;
// usagemetrics.go has the metrics; podresources.go asks the kubelet which pods and containers use
// claims.
package telemetry
