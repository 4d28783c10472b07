// Package live keeps what the page shows up to date.
//
// Store has the Snapshot of pkg/cluster/overview: it follows the API server with the rights that it is
// given, and computes again only the nodes that have changed.
//
// ResourceSlices are kept packed, a node's are unpacked when the node changes: of a thousand nodes
// they take tens of megabytes instead of most of a gigabyte. Kinds of objects that may not be read
// become Unread of the snapshot. Where claims of all namespaces may not be read, those of one are.
//
// Explain explains a pending pod to a viewer by what is kept.
//
// History has how busy the GPUs were in the last hour, of the nodes that somebody looks at.
package live
