// Package layout finds where on a card a set of partitions fits.
//
// It is pure and imports pkg/gpu only.
package layout
