// Package offer computes the share devices that a GPU offers: GPU and profile in,
// placements out. It is pure and builds on every platform, for kubectl tranche.
package offer
