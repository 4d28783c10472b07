// Package amdtest keeps the files of a host with AMD GPUs in memory, for tests. The GPUs are copied
// from files of real machines; each says from which.
package amdtest
