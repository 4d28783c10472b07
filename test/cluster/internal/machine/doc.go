// Package machine makes a machine of namespaces: processes, mounts, network
// and host name of its own, on the host's kernel and over the host's files.
//
// The first process of a machine is this program again (Init). It mounts what
// the machine's Spec says, starts and ends processes when it is asked through
// a socket, and reaps what others leave behind. When it ends, the kernel ends
// every process of the machine and drops its mounts and network devices:
// stopping a machine is killing one process, and leaves nothing behind
// whatever has crashed before.
package machine
