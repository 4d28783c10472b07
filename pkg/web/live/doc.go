// Package live keeps the Snapshot of pkg/web/view up to date: it watches the API server with the
// rights that it is given, and computes again only the nodes that have changed.
//
// ResourceSlices are kept packed, a node's are unpacked when the node changes: of a thousand nodes
// they take tens of megabytes instead of most of a gigabyte. Kinds of objects that may not be read
// become gaps of the snapshot. Where claims of all namespaces may not be read, those of one are.
//
// Explain explains a pending pod to a viewer by what is kept.
package live
