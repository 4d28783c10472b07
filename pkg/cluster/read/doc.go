// Package read reads the objects of which the model of pkg/cluster is made, with the rights of
// whoever asks.
//
// A kind that cannot be read is left out, and is named in a Gap with what follows from that. Where
// a kind may not be read in all namespaces, it is read in one.
//
//   - source.go: what lists and watches; Clients does so with the clients of a program
//   - kinds.go: the kinds of the model, and what is missing without each
//   - list.go: objects once, in pages
//   - follow.go: objects again and again, as they change
package read
