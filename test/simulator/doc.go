// Package simulate makes a hardware.Machine of the simulated drivers below it: the
// kubelet plugin runs on it as it does on a real machine. Only test/simulator/cmd/tranche-simulator
// and tests import it.
//
// Imports: pkg/hardware, pkg/hardware/amd, pkg/hardware/kmod, pkg/hardware/nvidia,
// pkg/publish/models, test/simulator/amdgpu, test/simulator/nvdriver.
package simulator
