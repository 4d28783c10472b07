// Package claim creates the partitions of allocated ResourceClaims, and destroys them again.
//
// manager.go has the Manager, prepare.go and release.go its main operations. Package steps
// decides on the steps. run.go performs them, after they are recorded in the ledger, and undoes
// them if one fails; step.go says which did, and trial.go tries again without a claim. reconcile.go
// compares the ledger with the hardware and the API server, and repairs differences; keepup.go keeps
// records and CDI files current.
//
// locks.go has a lock for each GPU, and exclusive.go keeps claims off GPUs that are being
// repartitioned. leftovers.go remembers what released claims have left on GPUs.
//
// Shares are devices that several claims can hold. A Sharer sets them up (shares.go). wait.go
// waits without a lock for MPS daemons that it has started; running.go stops daemons that no
// claim needs, and restarts those that died.
package claim
