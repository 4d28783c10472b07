// Package layout finds where on a card a set of partitions fits.
//
// It is pure and imports pkg/gpu only. What fits together is decided by the card's
// counters, as the scheduler decides it.
package layout
