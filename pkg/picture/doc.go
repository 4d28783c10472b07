// Package picture draws what pkg/cluster knows, for a terminal of a given width: each GPU
// as a bar, divided into the partitions that are held, with who holds them and what still fits;
// and how far nodes are with their profiles. explanation.go writes what pkg/why explains.
//
// Everything is pure.
//
// Imports: api/v1alpha1, pkg/cluster, pkg/gpu, pkg/terminal, pkg/text, pkg/why.
package picture
