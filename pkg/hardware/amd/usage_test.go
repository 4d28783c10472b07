package amd_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/load"
)

const gib = 1 << 30

func (m *machine) usage(pciAddress string) gpu.Usage {
	m.t.Helper()
	u, err := m.Usage(m.t.Context(), pciAddress)
	require.NoError(m.t, err)
	return u
}

func TestUsageOfAWholeGPU(t *testing.T) {
	m := simulated(t, "mi300x8")
	g := m.gpus()[0]
	m.faults(amdgpu.Faults{
		Processes: []amdgpu.Process{
			{PID: 11, GPUs: []string{g.PCIAddress}, Use: load.Use{Compute: 50, MemoryMiB: 2048}},
			{PID: 12, GPUs: []string{m.gpus()[1].PCIAddress}},
		},
		RAS: []amdgpu.RAS{{GPU: g.PCIAddress, Block: "umc", Correctable: 3, Uncorrectable: 1}, {GPU: g.PCIAddress, Block: "gfx", Correctable: 2}},
	})
	u := m.usage(g.PCIAddress)
	assert.Equal(t, gpu.Measured{
		gpu.MemoryUsed: 2 * gib, gpu.MemoryTotal: float64(g.Memory),
		gpu.Utilization: 0.5, gpu.MemoryUtilization: 0.25, gpu.Occupied: 0.5, gpu.Power: 750 * 0.55, gpu.ProcessCount: 1,
		gpu.CorrectedErrors: 5, gpu.UncorrectedErrors: 1,
	}, u.Measured)
	assert.Empty(t, u.Partitions)
	assert.Nil(t, u.Throttled)
	assert.Equal(t, []gpu.ProcessUsage{{PID: 11, Device: g.Name(), Measured: gpu.Measured{gpu.MemoryUsed: 2 * gib, gpu.Occupied: 0.5}}}, u.Processes)
}

func TestUsageOfPartitions(t *testing.T) {
	m := simulated(t, "mi300x8")
	g := m.gpus()[0]
	require.NoError(t, m.SetComputePartition(t.Context(), g.PCIAddress, "CPX"))
	third := 3
	m.faults(amdgpu.Faults{Processes: []amdgpu.Process{
		{PID: 11, GPUs: []string{g.PCIAddress}, Partition: &third, Use: load.Use{Compute: 100, MemoryMiB: 1024}},
		{PID: 12, GPUs: []string{g.PCIAddress}, Partition: &third},
	}})
	u := m.usage(g.PCIAddress)
	require.Len(t, u.Partitions, 8)
	assert.InDelta(t, 1.5*gib, u.Measured[gpu.MemoryUsed], 0)
	assert.InDelta(t, 0.125, u.Measured[gpu.Occupied], 1e-9)
	p := u.Partitions[3]
	assert.Equal(t, g.Name()+"-cpx-3", p.Name())
	assert.Equal(t, "3", p.Instance)
	assert.InDelta(t, 1.5*gib, p.Measured[gpu.MemoryUsed], 0)
	assert.Greater(t, p.Measured[gpu.MemoryTotal], 20.*gib)
	assert.InDelta(t, 1, p.Measured[gpu.Occupied], 1e-9)
	assert.InDelta(t, 2, p.Measured[gpu.ProcessCount], 0)
	assert.InDelta(t, 0, u.Partitions[0].Measured[gpu.ProcessCount], 0)
	require.Len(t, u.Processes, 2)
	assert.Equal(t, p.Name(), u.Processes[0].Device)
}

// A chip without a file tells the rest, and one that is being reset tells that.
func TestUsageThatCannotBeRead(t *testing.T) {
	m := simulated(t, "mi300x8")
	address := m.gpus()[0].PCIAddress
	m.faults(amdgpu.Faults{Resetting: []string{address}})
	_, err := m.Usage(t.Context(), address)
	require.ErrorContains(t, err, "is being reset")
	m.faults(amdgpu.Faults{Lost: []string{address}})
	_, err = m.Usage(t.Context(), address)
	require.ErrorContains(t, err, "is gone")
}

// A chip without cu_occupancy says so by EINVAL. It has no values of 0 while it is idle.
func TestComputeUnitsThatTheChipDoesNotTell(t *testing.T) {
	for name, test := range map[string]struct {
		gfx       int
		told      string
		idle, one bool
	}{
		"MI300":                     {90402, "38", true, true},
		"MI300 with an old KFD":     {90402, "", true, false},
		"another chip":              {100300, "", false, false},
		"another chip with new KFD": {100300, "38", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := amdtest.MI300XSPX()
			g.Nodes[0].GFX = test.gfx
			files := amdtest.NewTree(g)
			d, err := amd.New(amd.Config{Files: files, HostDevRoot: t.TempDir()})
			require.NoError(t, err)
			u, err := d.Usage(t.Context(), g.Address)
			require.NoError(t, err)
			assert.Equal(t, test.idle, has(u, gpu.Occupied), "idle")
			dir, id := sysfs.ProcessDir+"/7", fmt.Sprint(24000+g.Nodes[0].Number)
			files.Set(dir+"/vram_"+id, "100")
			if test.told == "" {
				files.Refuse("read "+dir+"/stats_"+id+"/cu_occupancy", unix.EINVAL)
			} else {
				files.Set(dir+"/stats_"+id+"/cu_occupancy", test.told)
			}
			u, err = d.Usage(t.Context(), g.Address)
			require.NoError(t, err)
			assert.Len(t, u.Processes, 1)
			assert.Equal(t, test.one, has(u, gpu.Occupied), "busy")
		})
	}
}

// A chip that does not measure something tells the rest. Some chips have no average power.
func TestUsageThatTheChipDoesNotMeasure(t *testing.T) {
	const address, device = "0000:05:00.0", sysfs.DevicesDir + "/0000:05:00.0/"
	all := gpu.Measured{
		gpu.Utilization: 0.5, gpu.MemoryUtilization: 0.25, gpu.Power: 75, gpu.MemoryUsed: 1024, gpu.MemoryTotal: float64(196592 * amdtest.MiB),
		gpu.ProcessCount: 1, gpu.Occupied: 0.0625, gpu.CorrectedErrors: 2, gpu.UncorrectedErrors: 0,
	}
	for name, test := range map[string]struct {
		change func(files *amdtest.Tree)
		lacks  []gpu.Measure
	}{
		"all":           {func(*amdtest.Tree) {}, nil},
		"not supported": {func(f *amdtest.Tree) { f.Refuse("read "+device+"gpu_busy_percent", unix.EOPNOTSUPP) }, []gpu.Measure{gpu.Utilization}},
		"invalid":       {func(f *amdtest.Tree) { f.Refuse("read "+device+"mem_busy_percent", unix.EINVAL) }, []gpu.Measure{gpu.MemoryUtilization}},
		"a sentence":    {func(f *amdtest.Tree) { f.Set(device+"mem_info_vram_used", "unknown") }, []gpu.Measure{gpu.MemoryUsed}},
		"no sensor":     {func(f *amdtest.Tree) { f.Set(device+"hwmon/hwmon3/power1_average", "unknown") }, []gpu.Measure{gpu.Power}},
		"no hwmon":      {func(f *amdtest.Tree) { f.Remove(device + "hwmon") }, []gpu.Measure{gpu.Power}},
		"no errors":     {func(f *amdtest.Tree) { f.Remove(device + "ras") }, []gpu.Measure{gpu.CorrectedErrors, gpu.UncorrectedErrors}},
		"power of this moment": {func(f *amdtest.Tree) {
			f.Remove(device + "hwmon/hwmon3/power1_average")
			f.Set(device+"hwmon/hwmon3/power1_input", "75000000")
		}, nil},
	} {
		files := measured()
		test.change(files)
		d, err := amd.New(amd.Config{Files: files})
		require.NoError(t, err)
		u, err := d.Usage(t.Context(), address)
		require.NoError(t, err, name)
		want := maps.Clone(all)
		for _, measure := range test.lacks {
			delete(want, measure)
		}
		assert.Equal(t, want, u.Measured, name)
	}
}

// With too many processes to read, what they use is not known, and the rest is.
func TestUsageOfManyProcesses(t *testing.T) {
	g := amdtest.MI300XCPX()
	files := amdtest.NewTree(g)
	for pid := range 600 {
		files.Set(fmt.Sprintf("%s/%d/vram_%d", sysfs.ProcessDir, pid, 24000+g.Nodes[0].Number), "100")
	}
	d, err := amd.New(amd.Config{Files: files, HostDevRoot: t.TempDir()})
	require.NoError(t, err)
	u, err := d.Usage(t.Context(), g.Address)
	require.NoError(t, err)
	assert.True(t, has(u, gpu.MemoryTotal))
	assert.False(t, has(u, gpu.ProcessCount))
	assert.Empty(t, u.Processes)
	require.Len(t, u.Partitions, 8)
	assert.Equal(t, []gpu.Measure{gpu.MemoryTotal}, slices.Collect(maps.Keys(u.Partitions[0].Measured)))
}

func has(u gpu.Usage, measure gpu.Measure) bool {
	_, known := u.Measured[measure]
	return known
}
