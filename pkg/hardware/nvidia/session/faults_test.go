package session_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// Nothing is concluded from a call that fails: the operation fails, too.
func TestFailedCallsAreReported(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	ctx, whole := t.Context(), m.Whole()
	m.MIGOn()
	p := m.Placement("1g.10gb", 2)
	create := func() { m.Made(p) }
	destroy := func() { require.NoError(t, m.Destroy(ctx, p)) }
	off := func() { require.NoError(t, m.SetMIG(ctx, firstGPU, false, false)) }
	on := func() { require.NoError(t, m.SetMIG(ctx, firstGPU, true, false)) }

	mode := []string{"GetFieldValues", "GetHandle", "GetMigMode", "GetVirtualizationMode"}
	if nvdriver.LibraryForTest(t.Name()) == "535" { // It does not say itself whether MIG needs a reset.
		mode = append(mode, "GetCudaComputeCapability")
	}
	instances := []string{"GetGpuInstanceProfileInfo", "GetGpuInstances", "GetMemoryInfo", "GetMigDeviceHandleByIndex"}
	clients := []string{"GetComputeRunningProcesses", "GetGraphicsRunningProcesses", "SetMigMode"}
	partition := slices.Concat(mode, instances, []string{"GetComputeInstanceId", "GetComputeInstances", "GetGpuInstanceId", "GetUUID"})
	usage := slices.Clone(partition)
	usage[slices.Index(usage, "GetMemoryInfo")] = "GetMemoryInfo 3" // a partition's, which may be gone
	for _, test := range []struct {
		name         string
		before, undo func()
		operation    func() error
		want         []string
	}{
		{"create", nil, destroy, func() error { _, err := m.Create(ctx, p); return err }, append(slices.Clip(partition), "CreateComputeInstance", "CreateGpuInstance")},
		{"live", create, nil, func() error { _, err := m.Live(ctx, firstGPU); return err }, partition},
		{"edits", nil, nil, func() error { _, err := m.Edits(ctx, p); return err }, append(slices.Clip(partition), "GetMinorNumber", "GetPciInfo", "Init 1")},
		{"usage", nil, nil, func() error { _, err := m.Usage(ctx, firstGPU); return err }, usage},
		{"modes", nil, nil, func() error { _, err := m.Modes(ctx, firstGPU); return err }, mode},
		{"destroy", nil, create, func() error { return m.Destroy(ctx, p) }, append(slices.Clip(partition), "ComputeInstanceDestroy", "GpuInstanceDestroy")},
		{"MIG off", destroy, on, func() error { return m.SetMIG(ctx, firstGPU, false, false) }, slices.Concat(mode, instances, clients)},
		{"MIG on", off, off, func() error { return m.SetMIG(ctx, firstGPU, true, false) }, slices.Concat(mode, clients)},
		{"whole GPU", on, on, func() error { _, err := m.Create(ctx, whole); return err }, slices.Concat(mode, instances, clients, []string{"GetUUID"})},
	} {
		if test.before != nil {
			test.before()
		}
		assert.ElementsMatch(t, test.want, m.Reported(test.operation, test.undo), test.name)
	}
}
