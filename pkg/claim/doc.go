// Package claim turns an allocated ResourceClaim into partitions, and takes
// them apart again.
//
// The package plan decides and touches nothing; a Manager takes the steps one by one,
// writes each down before it is taken, and undoes them when one fails (run.go).
// reconcile.go compares the ledger with the hardware and the API server and repairs what
// is left over.
//
// exclusive.go keeps claims off GPUs whose shape is being changed.
//
// Shares are devices that several claims hold at once: what their holders find is set up
// by a Sharer. wait.go waits, with no lock held, for what it has only started; running.go
// ends what no record explains and brings back what died.
//
// Imports: api/v1alpha1, pkg/cdi, pkg/claim/ledger, pkg/claim/plan, pkg/gpu, pkg/hardware.
package claim
