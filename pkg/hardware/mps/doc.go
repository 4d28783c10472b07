// Package mps runs NVIDIA's Multi-Process Service: the control daemons through
// which processes of several containers use one GPU side by side, each kept to
// its memory and to its part of the processors.
//
// A daemon outlives the plugin that started it, because containers hang on it: it
// is a process of the host, outside the plugin's control groups and namespaces.
// Everything about it lies in a folder of its own, so that any plugin process on
// the node finds it again:
//
//	<Dir>/<id>/spec.json  what it is for
//	          /lock       held while it is launched or stopped
//	          /pid        which process it is
//	          /ready      which process answered and has its limits
//	          /cgroups    its control groups
//	          /launch.log what the launcher and the daemon said
//	          /pipe /log
//	          /shm        a tmpfs of a limited size: /dev/shm of daemon and clients
//
// The way through it: supervisor.go is what callers use, and folder.go what lies
// in the folder; launch.go is the plugin's program run again, which becomes the
// daemon on its way through namespaces.go and cgroups.go; control.go talks to
// daemons; settle.go brings one from launched to ready; stop.go ends it; shm.go is
// about the folders that containers have mounted.
package mps
