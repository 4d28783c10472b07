// Package steps computes the steps that prepare or release a claim from the allocation, the
// inventory, the ledger and the existing partitions. It is pure.
//
// devices.go and amounts.go read the allocation, steps.go checks it against other claims and lists
// the steps. conflict.go describes conflicts with other claims.
package steps
