// Package simulator makes a hardware.Machine of the simulated drivers below it: the
// kubelet plugin runs on it as it does on a real machine. Only tests import it:
// on a node, test/simulator/cmd/simulated-driver installs the drivers, and the plugin finds them itself.
package simulator
