// Package simulator makes a hardware.Machine of the simulated drivers below it: the
// kubelet plugin runs on it as it does on a real machine. Only test/simulator/cmd/tranche-simulator
// and tests import it.
package simulator
