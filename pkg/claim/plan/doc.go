// Package plan decides how an allocated claim becomes partitions and shares, and how they
// are taken apart: claim, inventory, ledger and live state in, steps out. It is pure.
//
// devices.go and amounts.go read what the scheduler gave to a claim, plan.go and shares.go
// check it against what others hold and list the steps, conflict.go says who is in the way.
//
// Imports: pkg/claim/ledger, pkg/gpu, pkg/text.
package plan
