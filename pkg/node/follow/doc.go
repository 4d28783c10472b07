// Package follow carries out switches to another profile on the kubelet plugin's node, as the
// controller requests them in the GPUNode, and reports the state of the node there.
//
// follow.go watches the GPUNode, answer.go does what a switch asks for. switchtaints.go has the
// device taints for a switch, reservation.go those for a defragmentation. reboot.go reboots the
// machine, restore.go applies the profile again after a reboot or a reload of a driver. nodereport.go
// and trouble.go report the state of the node, within the bounds in bounds.go, and inputhash.go the hash
// of what plans depend on.
package follow
