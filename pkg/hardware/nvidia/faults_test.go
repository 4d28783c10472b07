package nvidia

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// Nothing is concluded from a call that fails: the operation fails, too.
func TestFailedCallsAreReported(t *testing.T) {
	m, address, pod, _ := limited(t, nvidiatest.OfModel(t, "L4-24GB", ""))
	hopper := simulated(t, inventoryOf(t, "{model: H100-80GB, pci: ['"+firstGPU+"']}"))
	require.NoError(t, nvdriver.AddProcess(hopper.Root, nvdriver.Process{GPU: firstGPU, PID: 11}))
	ctx, whole := t.Context(), m.Whole()
	unlimit := func() { require.NoError(t, m.SetMemoryLimit(ctx, address, pod, gpu.MemoryLimit{})) }
	shared := func() { require.NoError(t, m.SetComputeMode(ctx, address, gpu.ComputeDefault)) }
	links := "GetCudaComputeCapability 3"
	if nvdriver.LibraryForTest(t.Name()) == "535" { // It does not say itself whether MIG needs a reset.
		links = "GetCudaComputeCapability 4"
	}
	for name, test := range map[string]struct {
		undo      func()
		operation func() error
		want      []string
	}{
		"inventory":        {nil, func() error { _, err := m.Inventory(ctx); return err }, []string{"GetCount", "GetCudaComputeCapability", "GetHandle", "GetMemoryInfo", "GetMigMode", "GetMinorNumber", "GetName", "GetNumGpuCores", "GetPciInfo", "GetUUID"}},
		"usage":            {nil, func() error { _, err := m.Usage(ctx, address); return err }, []string{"GetHandle", "GetMemoryInfo", "GetMigDeviceHandleByIndex", "GetMigMode"}},
		"settings":         {nil, func() error { _, err := m.Settings(ctx, address); return err }, []string{"GetComputeMode", "GetHandle", "GetMigMode"}},
		"set compute mode": {shared, func() error { return m.SetComputeMode(ctx, address, gpu.ComputeExclusive) }, []string{"GetComputeMode 1", "GetHandle", "GetMigMode", "SetComputeMode"}},
		"memory limit":     {nil, func() error { _, err := m.MemoryLimit(ctx, address, pod); return err }, []string{"GetHandle", "GetMemoryLimits", "GetMigMode"}},
		"set memory limit": {unlimit, func() error { return m.SetMemoryLimit(ctx, address, pod, gpu.MemoryLimit{Bytes: gib}) }, []string{"GetHandle", "GetMigMode", "SetMemoryLimits"}},
		"health":           {nil, func() error { return m.CheckHealth(ctx, address) }, []string{"GetFieldValues", "GetHandle", "GetMemoryInfo"}},
		"obstacles":        {nil, func() error { _, err := m.Obstacles(ctx, address, false); return err }, []string{"GetHandle", "GetMigMode"}},
		"recovered": {nil, func() error {
			_, err := m.Recovered(ctx, gpu.HealthEvent{PCIAddress: address, Fatal: true, XID: 13})
			return err
		}, []string{"GetFieldValues", "GetHandle", "GetMemoryInfo", "GetTotalEnergyConsumption"}},
		"edits":               {nil, func() error { _, err := m.Edits(ctx, whole); return err }, []string{"GetHandle", "GetMinorNumber", "GetPciInfo", "GetUUID", "Init 1"}},
		"inventory of Hopper": {nil, func() error { _, err := hopper.Inventory(ctx); return err }, []string{"GetCount", links, "GetFieldValues", "GetGpuInstancePossiblePlacements", "GetGpuInstanceProfileInfo", "GetHandle", "GetMemoryInfo", "GetMigMode", "GetMinorNumber", "GetName", "GetNumGpuCores", "GetPciInfo", "GetUUID", "GetVirtualizationMode"}},
		"obstacles of Hopper": {nil, func() error { _, err := hopper.Obstacles(ctx, firstGPU, false); return err }, []string{"GetComputeRunningProcesses", "GetCudaComputeCapability", "GetFieldValues", "GetGpuInstancePossiblePlacements", "GetGpuInstanceProfileInfo", "GetGraphicsRunningProcesses", "GetHandle", "GetMemoryInfo", "GetMigMode", "GetNumGpuCores", "GetUUID", "GetVirtualizationMode"}},
	} {
		tested := m
		if strings.HasSuffix(name, "Hopper") {
			tested = hopper
		}
		assert.Equal(t, strings.Join(test.want, ", "), strings.Join(tested.Reported(test.operation, test.undo), ", "), name)
	}
}
