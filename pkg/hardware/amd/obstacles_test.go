package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// What a kernel does with processes of other GPUs is learnt from it, and
// forgotten with the load of the driver.
func TestHostWideBusyRuleIsLearnt(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	g := inventoryOf(t, d)[0]
	files.Set(sysfs.ProcessDir+"/7/vram_24999", "4096\n")
	obstacles := func() []gpu.Obstacle {
		all, err := d.Obstacles(t.Context(), paperAddress, false)
		require.NoError(t, err)
		return all
	}
	assert.Empty(t, obstacles(), "most kernels do not mind")
	files.Fails["write "+modeFile] = unix.EBUSY
	_, err := d.Create(t.Context(), amdtest.Placement(t, g, "cpx-0"))
	require.ErrorIs(t, err, gpu.ErrInUse)
	all := obstacles()
	require.Len(t, all, 14, "all but the whole GPU, in which mode it is")
	assert.Equal(t, gpu.Obstacle{
		Placement: "gpu-0000-05-00-0-cpx-0", Kind: gpu.ObstacleBusy,
		Reason: "this kernel switches no GPU while any process of the host uses KFD, and process 7 does; the GPU stays in mode SPX",
	}, all[0])
	assert.Equal(t, all, obstacles(), "the reason stays the same")

	load := files.Infos[sysfs.ModuleDir]
	files.Infos[sysfs.ModuleDir] = sysfs.Info{Inode: load.Inode + 1}
	assert.Empty(t, obstacles(), "another load may be of another driver")
	files.Infos[sysfs.ModuleDir] = load
	assert.NotEmpty(t, obstacles())
	delete(files.Fails, "write "+modeFile)
	obey(files)
	_, err = d.Create(t.Context(), amdtest.Placement(t, g, "cpx-0"))
	require.NoError(t, err)
	assert.Empty(t, obstacles(), "it has switched all the same")
}

func TestObstacles(t *testing.T) {
	g := amdtest.MI300XCPX()
	g.Nodes = append(g.Nodes[:5], g.Nodes[6:]...)
	files, d := onPaper(t, g)
	inventoryOf(t, d)
	missing := gpu.Obstacle{
		Placement: "gpu-0000-05-00-0-cpx-5", Kind: gpu.ObstacleMissing,
		Reason: "KFD has only 7 of the 8 partitions of mode CPX, and not that with index 5; does another graphics driver (ast, of the board's own display) hold a DRM device that the partition would need? Unload it and reload amdgpu",
	}
	all, err := d.Obstacles(t.Context(), paperAddress, false)
	require.NoError(t, err)
	assert.Equal(t, []gpu.Obstacle{missing}, all)

	files.Set(sysfs.ProcessDir+"/4242/vram_24003", "4096\n")
	files.Set("/proc/4242/comm", "python3\n")
	all, err = d.Obstacles(t.Context(), paperAddress, true)
	require.NoError(t, err)
	assert.Equal(t, []gpu.Obstacle{missing}, all, "a GPU that is held is excluded by its counters")
	all, err = d.Obstacles(t.Context(), paperAddress, false)
	require.NoError(t, err)
	assert.Len(t, all, 1+4+2+1)
	assert.Contains(t, all, missing)
	assert.Contains(t, all, gpu.Obstacle{
		Placement: "gpu-0000-05-00-0", Kind: gpu.ObstacleBusy, Reason: "the GPU stays in mode CPX as long as process 4242 (python3) uses it",
	})

	// Not even an inventory is needed.
	again, err := driverOn(t, files).Obstacles(t.Context(), paperAddress, false)
	require.NoError(t, err)
	assert.Equal(t, all, again)
}
