// Package plan computes the steps that prepare or release a claim from the allocation, the
// inventory, the ledger and the existing partitions. It is pure.
//
// devices.go and amounts.go read the allocation, plan.go and shares.go check it against other
// claims and list the steps. conflict.go describes conflicts with other claims.
package plan
