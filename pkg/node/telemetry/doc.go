// Package telemetry tells people and other programs what the kubelet plugin does: events,
// metrics, and the status of claims.
//
// events.go writes events about the node and its pods. metrics.go counts, and lists from
// the ledger what claims hold, sharemetrics.go of shares. claimstatus.go writes what became
// of the devices of a claim. Nothing waits for these and nothing depends on them.
//
// Imports: api/v1alpha1, pkg/claim/ledger, pkg/gpu, pkg/text.
package telemetry
