// Package simulate makes a hardware.Machine of the simulated drivers below it: the
// kubelet plugin runs on it as it does on a real machine. Only cmd/tranche-simulator
// and tests import it.
//
// It imports pkg/models, the packages below it, and of pkg/hardware the contract,
// nvidia, amd and kmod.
package simulate
