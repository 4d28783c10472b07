// Package amd speaks to AMD Instinct cards by way of the files of their kernel
// driver: sysfs of amdgpu and KFD. It finds cards and partitions, switches
// compute modes and says what containers need.
//
// It may import the vocabulary, the arithmetic of partitions (pkg/hardware/xcp)
// and the CDI types. It is pure Go: below Files is either the host or a
// simulated kernel.
package amd
