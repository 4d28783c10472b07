// Package claim turns an allocated ResourceClaim into partitions, and takes
// them apart again.
//
// plan.go decides and touches nothing: claim, inventory and ledger in, steps
// out. The executor takes the steps one by one, writes each down before it is
// taken, and undoes them when one fails. reconcile.go compares the ledger with
// the hardware and the API server and repairs what is left over.
//
// It may import the vocabulary (pkg/gpu), the ledger and the CDI files. A
// vendor is known only through the Hardware interface.
package claim
