// Package inventory keeps what the kubelet plugin knows of each GPU of its node.
//
// gpus.go has the GPUs that were seen in this run, with what is wrong with them and what
// claims hold of them that is gone. roster.go has those that profiles count, over restarts.
// troubles.go has the fatal errors that are not over, over restarts.
//
// Imports: pkg/claim/ledger, pkg/durable, pkg/gpu.
package inventory
