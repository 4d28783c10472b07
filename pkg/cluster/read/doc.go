// Package read reads the objects of the model in pkg/cluster, with the rights of the user.
//
// A kind that cannot be read is described by a text.Unread. If a user may not list a kind in all namespaces, it
// is read in one namespace.
//
//   - source.go: Source lists and watches; Clients is a Source that uses a program's clients
//   - kinds.go: the kinds of the model, and the consequences if they cannot be read
//   - list.go: lists objects once, in pages
//   - follow.go: keeps objects up to date
//   - requested.go: what the pods of a node request of it
package read
