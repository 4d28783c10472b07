package session_test

import (
	"testing"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/nvidiatest/driven"
)

// The tests use this package through the driver.
type (
	Config  = nvidia.Config
	machine = driven.Machine
)

var simulated, withLibrary, trapping = driven.Simulated, driven.WithLibrary, driven.Trapping

const (
	firstGPU = "0000:1b:00.0"
	ampere0  = "0000:07:00.0"
)

// ampere is a machine of A100s, and its nvidia-smi.
func ampere(t *testing.T, name string, change ...func(*Config)) (*machine, *nvidiatest.Tool) {
	t.Helper()
	n := &nvidiatest.Tool{}
	return simulated(t, name, append(change, func(c *Config) { c.Run = n.On(c.ProcRoot) })...), n
}
