// Package sysfs reads and writes the files by which amdgpu and KFD are controlled: /sys, /proc
// and /dev of the host, or of a simulated kernel. Any of these calls can hang in the kernel,
// so each belongs to a [Task], which is the only one at its GPU and can be given up.
package sysfs
