package hardware

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// checks are what must hold on every machine with NVIDIA GPUs.
var checks = []struct {
	name string
	run  func(*testing.T, *machine)
}{
	{"Inventory", checkInventory},
	{"Slices", checkSlices},
	{"Scheduler", checkScheduler},
	{"CommonEdits", checkCommonEdits},
	{"DeviceEdits", checkDeviceEdits},
	{"Assumptions", checkAssumptions},
	{"Health", checkHealth},
	{"LoadID", checkLoadID},
	{"WatchHealth", checkWatchHealth},
	{"Container", checkContainer},
	{"ShareDevices", checkShareDevices},
	{"ShareEdits", checkShareEdits},
	{"MPS", checkMPS},
	{"Limits", checkLimits},
	{"KernelLimits", checkKernelLimits},
}

// TestHardware checks the GPUs of this machine.
func TestHardware(t *testing.T) {
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			m := realMachine(t)
			before := stateOf(t, m)
			check.run(t, m)
			assert.Equal(t, before, stateOf(t, m), "the check has changed the GPUs")
		})
	}
}

// state is what a check must leave as it is: modes and instances.
type state struct {
	Modes      gpu.Modes
	Settings   gpu.Settings
	Partitions []gpu.Partition
}

func stateOf(t *testing.T, m *machine) map[string]state {
	t.Helper()
	all := map[string]state{}
	for _, g := range gpusOf(t, m) {
		var s state
		var err error
		s.Modes, err = m.Modes(m.ctx(t), g.PCIAddress)
		require.NoError(t, err)
		s.Partitions, err = m.Live(m.ctx(t), g.PCIAddress)
		require.NoError(t, err)
		if r, ok := m.reader.(settingsReader); ok && s.Modes.MIG != gpu.MIGOn { // with MIG on, NVML answers for MIG devices only
			s.Settings, err = r.Settings(m.ctx(t), g.PCIAddress)
			require.NoError(t, err)
		}
		all[g.Name()] = s
	}
	return all
}
