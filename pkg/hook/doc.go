// Package hook is what the container runtime runs before a container of a share starts, and what that
// says to the node's plugin. The runtime runs it as root on the host (OCI, hook createRuntime), with the
// claim and the device as arguments, and with the state of the container as input. It finds the
// control group of the container and asks the plugin to limit its memory (request.go). If that fails,
// the container does not start, and the kubelet tries again.
//
// The program is small and linked statically, so that it starts fast on any host: it imports nothing
// but the standard library.
package hook
