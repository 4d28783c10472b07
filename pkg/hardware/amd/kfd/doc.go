// Package kfd reads KFD, the compute part of amdgpu: its topology, in which each GPU or
// partition is a node, and the processes that use it.
package kfd
