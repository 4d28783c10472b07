// Package sharing decides how the GPUs of the kubelet plugin's node are shared, and monitors the
// MPS daemons of the node.
//
// sharing.go applies new settings to a GPU when no claim holds a share of it. daemons.go has the
// state of the daemons, supervisor.go passes calls to the supervisor of the current driver.
package sharing
