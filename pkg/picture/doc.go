// Package picture draws the model of pkg/cluster for a terminal of a given width: each GPU as a
// bar, divided into the partitions that are held, with their holders and the free capacity, and
// the progress of nodes with their profiles. explanation.go writes the explanations of pkg/why.
//
// Everything is pure.
package picture
