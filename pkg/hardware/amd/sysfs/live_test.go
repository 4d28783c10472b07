package sysfs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestLiveByMode(t *testing.T) {
	for _, test := range []struct {
		gpu  amdtest.GPU
		want []string
	}{
		{amdtest.MI300XSPX(), nil},
		{amdtest.MI300XDPX(), []string{"dpx-0 renderD128", "dpx-1 renderD129"}},
		{amdtest.MI308XCPX(1, 136), []string{"cpx-0 renderD136", "cpx-1 renderD137", "cpx-2 renderD138", "cpx-3 renderD139"}},
	} {
		_, m := machineOf(t, test.gpu)
		live, err := m.Live(t.Context(), test.gpu.Address)
		require.NoError(t, err)
		var got []string
		for _, p := range live {
			assert.Equal(t, gpu.TypeXCP, p.Type)
			assert.True(t, p.Complete)
			assert.Empty(t, p.UUID)
			got = append(got, p.Name()[len(gpu.NameOf(p.GPU))+1:]+" "+p.ID)
		}
		assert.Equal(t, test.want, got, test.gpu.Compute)
	}
}

// Of 64 partitions only 63 have a render node when the board's own display driver
// takes one.
func TestOneOfManyPartitionsIsMissing(t *testing.T) {
	c := amdtest.MI300XCPX()
	c.Nodes, c.Minors = c.Nodes[:7], 7
	_, m := machineOf(t, c)
	g := gpusOf(t, m)[0]
	assert.EqualValues(t, 304, amdtest.Placement(t, g, "").ComputeUnits, "what the GPU is does not depend on it")
	live, err := m.Live(t.Context(), c.Address)
	require.NoError(t, err)
	require.Len(t, live, 8)
	assert.True(t, live[6].Complete)
	assert.False(t, live[7].Complete)
	assert.Equal(t, "no KFD node", live[7].ID)
}

func TestMissing(t *testing.T) {
	node := sysfs.Node{GPUID: "51110"}
	live := sysfs.Live{Partitions: []sysfs.Partition{{Index: 0, Node: &node}, {Index: 1}, {Index: 2}}}
	assert.Equal(t, []int{1, 2}, live.Missing())
	assert.Equal(t, []sysfs.Node{node}, live.Nodes())
	assert.Equal(t, []string{"51110"}, live.GPUIDs())
}

func TestModeThatTheChipDoesNotHave(t *testing.T) {
	c := amdtest.MI300XCPX()
	c.Compute = "TPX"
	c.Nodes[0].XCCs = 1
	_, m := machineOf(t, c)
	_, err := m.Live(t.Context(), c.Address)
	assert.ErrorContains(t, err, "it is in mode TPX, which a chip of 3 XCCs does not have")
}

func TestRecentTopologyIsReadAgainAfterAChange(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XCPX())
	recent := func() *sysfs.Topology {
		top, err := m.RecentTopology(t.Context())
		require.NoError(t, err)
		return top
	}
	first := recent()
	assert.Len(t, first.Nodes, 8)
	assert.Same(t, first, recent())
	files.Replace(amdtest.MI300XDPX())
	assert.Len(t, recent().Nodes, 2)
}

// A kernel that does not count its changes is looked at again where the last look
// does not fit.
func TestSwitchThatKFDDidNotCount(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XCPX())
	live, err := m.Live(t.Context(), address)
	require.NoError(t, err)
	require.Len(t, live, 8)
	for _, g := range []amdtest.GPU{amdtest.MI300XDPX(), amdtest.MI300XCPX(), amdtest.MI300XSPX()} {
		generation := files.Files[sysfs.TopologyDir+"/generation_id"]
		files.Replace(g)
		files.Set(sysfs.TopologyDir+"/generation_id", generation)
		live, err = m.Live(t.Context(), address)
		require.NoError(t, err)
		for _, p := range live {
			assert.True(t, p.Complete, "%s of %s", p.Name(), g.Compute)
		}
	}
}

func onGPU[T any](t *testing.T, m *sysfs.Machine, f func(c *sysfs.GPU) (T, error)) (T, error) {
	t.Helper()
	return sysfs.OnGPU(t.Context(), m, address, f)
}

// Before something is handed out, the nodes of the GPU are read again, whatever KFD says of changes.
func TestConfirmed(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XDPX())
	units := func() (all []int64) {
		l, err := onGPU(t, m, (*sysfs.GPU).Confirmed)
		require.NoError(t, err)
		for _, n := range l.Nodes() {
			all = append(all, n.ComputeUnits)
		}
		return all
	}
	assert.Equal(t, []int64{152, 152}, units())
	properties := sysfs.NodesDir + "/3/properties"
	before := files.Files[properties]
	files.Set(properties, strings.Replace(before, "simd_count 608", "simd_count 600", 1))
	assert.Equal(t, []int64{152, 150}, units())
	files.Set(properties, strings.Replace(before, "simd_count 608", "simd_count 0", 1))
	assert.Equal(t, []int64{152}, units(), "a node in the making")
	assert.Equal(t, []int64{152}, units(), "it is still missing")
	files.Set(properties, before)
	assert.Equal(t, []int64{152, 152}, units())
	files.Remove(sysfs.NodesDir + "/3")
	assert.Equal(t, []int64{152}, units(), "a node that went")
	files.Refuse("read "+sysfs.NodesDir+"/2/gpu_id", unix.EIO)
	_, err := onGPU(t, m, (*sysfs.GPU).Confirmed)
	assert.ErrorIs(t, err, unix.EIO)
}

// A render node is handed out only if it is amdgpu's.
func TestCheckMinor(t *testing.T) {
	check := func(m *sysfs.Machine, minor int) error {
		_, err := onGPU(t, m, func(c *sysfs.GPU) (struct{}, error) {
			return struct{}{}, c.CheckMinor(sysfs.Partition{Node: &sysfs.Node{Number: 3, Minor: minor}})
		})
		return err
	}
	files, m := machineOf(t, amdtest.MI300XDPX())
	for range 2 { // where it was found is remembered
		require.NoError(t, check(m, 128), "the GPU's own")
		require.NoError(t, check(m, 129), "a partition's")
		require.EqualError(t, check(m, 140), "GPU 0000:05:00.0: KFD node 3 names renderD140, which is none of amdgpu's render nodes")
	}
	files.Remove(sysfs.PlatformDir + "/amdgpu_xcp_1")
	require.ErrorContains(t, check(m, 129), "none of amdgpu's render nodes", "it went since")
	files.Set(sysfs.PlatformDir+"/vgem/drm/renderD129/dev", "226:129")
	require.ErrorContains(t, check(m, 129), "none of amdgpu's render nodes", "another driver has it")
	files.Set(sysfs.PlatformDir+"/amdgpu_xcp.1/drm/renderD129/dev", "226:129")
	require.NoError(t, check(m, 129), "another spelling")
	for _, call := range []string{"list " + sysfs.PlatformDir, "stat " + device + "/drm/renderD129", "stat " + sysfs.PlatformDir + "/amdgpu_xcp.1/drm/renderD129"} {
		files.Refuse(call, unix.EIO)
		assert.ErrorIs(t, check(m, 129), unix.EIO, call)
		delete(files.Fails, call)
	}
}

// Who holds a gate keeps everybody else out, and goes on itself.
func TestHold(t *testing.T) {
	_, m := machineOf(t, amdtest.MI300XSPX())
	task, reopen, err := m.Hold(t.Context(), "amdgpu is reloaded")
	require.NoError(t, err)
	_, err = task.Undoing().Read(sysfs.BootID)
	require.NoError(t, err)
	_, err = m.Addresses(t.Context())
	require.EqualError(t, err, "amdgpu: amdgpu is reloaded")
	reopen()
	_, err = m.Addresses(t.Context())
	require.NoError(t, err)

	held, reopen, err := m.HoldGPU(t.Context(), address, "amdgpu is reloaded")
	require.NoError(t, err)
	mode, err := held.ComputeMode()
	require.NoError(t, err)
	assert.EqualValues(t, "SPX", mode)
	_, err = m.Live(t.Context(), address)
	require.EqualError(t, err, "GPU 0000:05:00.0: amdgpu is reloaded")
	others := amdtest.NewTree()
	others.Set("/only/here", "yes")
	text, err := held.On(others).Read("/only/here")
	require.NoError(t, err)
	assert.Equal(t, "yes", text)
	reopen()
	_, err = m.Live(t.Context(), address)
	require.NoError(t, err)
}

// What is known of a GPU stays until the driver is loaded again.
func TestKnown(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	placements := func() int {
		all, err := onGPU(t, m, (*sysfs.GPU).Placements)
		require.NoError(t, err)
		return len(all)
	}
	_, known := m.Known(address)
	assert.False(t, known)
	assert.Equal(t, 15, placements(), "read")
	want := gpusOf(t, m)[0]
	got, known := m.Known(address)
	assert.True(t, known)
	assert.Equal(t, want, got)
	assert.Equal(t, []string{address}, m.KnownAddresses())
	files.Set(device+"/"+sysfs.AvailableComputeFile, "SPX")
	assert.Equal(t, 15, placements(), "as the last inventory reported them")
	gpusOf(t, m)
	assert.Equal(t, 1, placements())
}
