// Package amdtest has a host's files in memory, for tests of AMD GPUs. The GPUs in it are
// copied from files of real machines; each says from where.
//
// Imports: pkg/gpu, pkg/hardware/amd/sysfs.
package amdtest
