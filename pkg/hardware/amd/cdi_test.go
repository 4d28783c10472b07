package amd

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func nodeText(path, kind string, major, minor int64, permissions, hostPath string) string {
	return fmt.Sprintf("%s %s %d:%d %s %s", path, kind, major, minor, permissions, hostPath)
}

func TestEdits(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	files.Device("/dev/dri/renderD131", 226, 131, 44)
	edits, err := d.Edits(t.Context(), paperPlacement("cpx", 3))
	require.NoError(t, err)
	require.Len(t, edits.DeviceNodes, 2)
	kfd, render := edits.DeviceNodes[0], edits.DeviceNodes[1]
	assert.Equal(t, "/dev/kfd c 239:0 rw ", nodeText(kfd.Path, kfd.Type, kfd.Major, kfd.Minor, kfd.Permissions, kfd.HostPath))
	assert.Equal(t, "/dev/dri/renderD131 c 226:131 rw ", nodeText(render.Path, render.Type, render.Major, render.Minor, render.Permissions, render.HostPath))
	assert.Equal(t, []uint32{109, 44}, edits.AdditionalGIDs)
	assert.Empty(t, edits.Env)
	assert.Empty(t, edits.Mounts)
	assert.Empty(t, edits.Hooks)

	// Groups are in the format since 0.7.0; what writes the file asks for the
	// version that it needs.
	version, err := cdispecs.MinimumRequiredVersion(&cdispecs.Spec{Kind: "tranche.dev/test", Devices: []cdispecs.Device{{Name: "a", ContainerEdits: *edits}}})
	require.NoError(t, err)
	assert.Equal(t, "0.7.0", version)

	common, err := d.CommonEdits(t.Context(), []string{paperAddress})
	require.NoError(t, err)
	assert.Empty(t, *common)

	files.Device("/dev/dri/renderD130", 226, 130, 0)
	edits, err = d.Edits(t.Context(), paperPlacement("cpx", 2))
	require.NoError(t, err)
	assert.Equal(t, []uint32{109}, edits.AdditionalGIDs, "no container gets root's group")

	d.cfg.HostDevRoot = "/var/lib/simulated"
	edits, err = d.Edits(t.Context(), paperPlacement("cpx", 3))
	require.NoError(t, err)
	assert.Equal(t, "/dev/dri/renderD131", edits.DeviceNodes[1].Path)
	assert.Equal(t, "/var/lib/simulated/dev/dri/renderD131", edits.DeviceNodes[1].HostPath)

	edits, err = d.Edits(t.Context(), gpu.Monitor(paperAddress))
	require.NoError(t, err)
	assert.Len(t, edits.DeviceNodes, 1+8, "KFD once, and all partitions")

	for name, test := range map[string]struct {
		p      gpu.Placement
		breaks func()
		want   string
	}{
		"the whole GPU":      {paperPlacement("spx", 0), func() {}, "GPU 0000:05:00.0 is in mode CPX and has no partition of mode SPX"},
		"another mode":       {paperPlacement("dpx", 0), func() {}, "GPU 0000:05:00.0 is in mode CPX and has no partition of mode DPX"},
		"not a device":       {paperPlacement("cpx", 4), func() { files.Infos["/dev/dri/renderD132"] = sysfs.Info{} }, "/dev/dri/renderD132 is not a character device"},
		"no device node":     {paperPlacement("cpx", 5), func() { files.Remove("/dev/dri/renderD133") }, "/dev/dri/renderD133: file does not exist"},
		"a missing KFD node": {paperPlacement("cpx", 6), func() { files.Remove(sysfs.NodesDir + "/8"); files.Set(sysfs.TopologyDir+"/generation_id", "2") }, "KFD has only 7 of the 8 partitions"},
	} {
		test.breaks()
		_, err := d.Edits(t.Context(), test.p)
		assert.ErrorContains(t, err, test.want, name)
	}
	_, err = d.Edits(t.Context(), gpu.Placement{GPU: "0000:99:00.0", Type: gpu.TypeGPU, Profile: "spx"})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.False(t, errors.Is(err, gpu.ErrInUse))
}
