package nvidia

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
)

const firstGPU, secondGPU = "0000:1b:00.0", "0000:43:00.0"

func TestCheckHealth(t *testing.T) {
	m := simulated(t, "h100x8")
	require.NoError(t, m.CheckHealth(t.Context(), firstGPU))
	m.SetFaults(nvdriver.Faults{Lost: []string{firstGPU}})
	require.ErrorIs(t, m.CheckHealth(t.Context(), firstGPU), nvml.ERROR_GPU_IS_LOST)
	require.NoError(t, m.CheckHealth(t.Context(), secondGPU))
	m.Fail("GetMemoryInfo", nvml.ERROR_UNKNOWN, 1)
	require.ErrorIs(t, m.CheckHealth(t.Context(), firstGPU), nvml.ERROR_UNKNOWN)
	require.NoError(t, m.CheckHealth(t.Context(), firstGPU))
	require.Error(t, m.CheckHealth(t.Context(), "0000:00:00.0"))
}

func TestCheckHealthKnowsEveryRecoveryAction(t *testing.T) {
	m := simulated(t, "h100x8")
	for action, want := range map[string]string{
		"reset":             "the driver asks for a reset of the GPU: drain the node, end every program",
		"reboot":            "a reboot of the node: drain and reboot the node",
		"drainP2P":          "an end of its traffic with other GPUs: drain the programs",
		"drainAndReset":     "nvidia-smi --gpu-reset -i " + firstGPU,
		"busReset":          "a reset of its PCIe bus",
		"systemReboot":      "a reboot of the machine",
		"recoverIMEXDomain": "",
	} {
		t.Run(action, func(t *testing.T) {
			m.SetFaults(nvdriver.Faults{Recovery: []nvdriver.Recovery{{GPU: firstGPU, Action: action}}})
			err := m.CheckHealth(t.Context(), firstGPU)
			require.NoError(t, m.CheckHealth(t.Context(), secondGPU))
			if want == "" {
				require.NoError(t, err, "not the GPU's trouble")
				return
			}
			var recovery *recoveryError
			require.ErrorAs(t, err, &recovery)
			assert.ErrorContains(t, err, want)
		})
	}
}

func TestCheckHealthWithoutTheField(t *testing.T) {
	m := simulated(t, "h100x8")
	m.Fail("GetFieldValues", nvml.ERROR_NOT_SUPPORTED, 0)
	known, err := m.examine(t.Context(), firstGPU)
	require.NoError(t, err)
	assert.False(t, known)
	m.Fail("GetFieldValues", nvml.ERROR_GPU_IS_LOST, 0)
	assert.ErrorIs(t, m.CheckHealth(t.Context(), firstGPU), nvml.ERROR_GPU_IS_LOST)
}

// event is one as it comes out of the file in which the node keeps it.
func (m *machine) event(number uint64) gpu.HealthEvent {
	m.T.Helper()
	load, err := m.LoadID()
	require.NoError(m.T, err)
	energy, ret := m.Device(0).GetTotalEnergyConsumption()
	require.Equal(m.T, nvml.SUCCESS, ret)
	data, err := json.Marshal(gpu.HealthEvent{PCIAddress: firstGPU, XID: number, Fatal: true, Message: "x", LoadID: load, Energy: energy})
	require.NoError(m.T, err)
	var e gpu.HealthEvent
	require.NoError(m.T, json.Unmarshal(data, &e))
	return e
}

func (m *machine) recovered(e gpu.HealthEvent) bool {
	m.T.Helper()
	over, err := m.Recovered(m.T.Context(), e)
	require.NoError(m.T, err)
	return over
}

const (
	accounted   = 95  // the driver keeps account of it
	unaccounted = 119 // only a reset ends it
)

func TestRecovered(t *testing.T) {
	m := simulated(t, "h100x8")
	assert.True(t, m.recovered(gpu.HealthEvent{PCIAddress: firstGPU, XID: 63}), "what is not fatal is over at once")
	assert.True(t, m.recovered(m.event(0)), "a GPU that was lost and answers")
	assert.True(t, m.recovered(m.event(accounted)), "the driver asks for nothing")
	assert.True(t, m.recovered(m.event(4711)))
	assert.False(t, m.recovered(m.event(unaccounted)), "the GPU answers, but was not reset")
	before := m.event(unaccounted)
	before.LoadID = "an earlier load"
	assert.True(t, m.recovered(before), "the driver was reloaded")

	m.SetFaults(nvdriver.Faults{Recovery: []nvdriver.Recovery{{GPU: firstGPU, Action: "reset"}}})
	for _, number := range []uint64{0, accounted, unaccounted} {
		over, err := m.Recovered(t.Context(), m.event(number))
		assert.False(t, over)
		assert.ErrorContains(t, err, "the driver asks for a reset of the GPU")
	}
	m.SetFaults(nvdriver.Faults{Lost: []string{firstGPU}})
	over, err := m.Recovered(t.Context(), gpu.HealthEvent{PCIAddress: firstGPU, Fatal: true})
	assert.False(t, over)
	assert.ErrorIs(t, err, nvml.ERROR_GPU_IS_LOST)
}

func TestRecoveredAfterARestart(t *testing.T) {
	for name, restart := range map[string]func(*machine) error{
		"reset":  func(m *machine) error { return nvdriver.ResetGPU(m.Root, firstGPU) },
		"reload": func(m *machine) error { return nvdriver.ReloadDriver(m.Root) },
		"reboot": func(m *machine) error { return nvdriver.Reboot(m.Root) },
	} {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, "h100x8")
			e := m.event(unaccounted)
			require.False(t, m.recovered(e))
			require.NoError(t, restart(m))
			assert.True(t, m.recovered(e))
		})
	}
	t.Run("of another GPU", func(t *testing.T) {
		m := simulated(t, "h100x8")
		e := m.event(unaccounted)
		require.NoError(t, nvdriver.ResetGPU(m.Root, secondGPU))
		assert.False(t, m.recovered(e))
		m.Fail("GetTotalEnergyConsumption", nvml.ERROR_NOT_SUPPORTED, 0)
		assert.False(t, m.recovered(e), "a GPU that does not count tells nothing")
	})
}

func TestOldDriversKeepNoAccount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.yaml")
	require.NoError(t, os.WriteFile(path, []byte("driverVersion: \"550.54.15\"\ngpus: [{model: H100-80GB, pci: [\""+firstGPU+"\"]}]"), 0o600))
	m := simulated(t, path)
	require.NoError(t, m.CheckHealth(t.Context(), firstGPU))
	e := m.event(accounted)
	assert.False(t, m.recovered(e))
	require.NoError(t, nvdriver.ResetGPU(m.Root, firstGPU))
	assert.True(t, m.recovered(e))
}

func TestLoadID(t *testing.T) {
	m := simulated(t, "l4x4")
	id := func() string {
		id, err := m.LoadID()
		require.NoError(t, err)
		return id
	}
	first := id()
	assert.Equal(t, first, id())
	assert.Len(t, strings.Split(first, "/"), 3)
	assert.True(t, strings.HasSuffix(first, "/580.159.04"))
	require.NoError(t, nvdriver.ResetGPU(m.Root, "0000:17:00.0"))
	assert.Equal(t, first, id(), "a reset of a GPU is no load of the driver")
	seen := map[string]bool{first: true}
	for _, restart := range []func(string) error{nvdriver.ReloadDriver, nvdriver.ReloadDriver, nvdriver.Reboot} {
		require.NoError(t, restart(m.Root))
		assert.False(t, seen[id()])
		seen[id()] = true
	}
	require.NoError(t, nvfiles.RetireModule(m.Root))
	_, err := m.LoadID()
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
