// Package telemetry reports what the kubelet plugin does: events, metrics, and the status of
// claims. The plugin does not depend on any of them.
//
// events.go and severalmig.go write events about the node and its pods, metrics.go,
// sharemetrics.go and freemetrics.go serve metrics, claimstatus.go writes the devices in the
// status of claims.
package telemetry
