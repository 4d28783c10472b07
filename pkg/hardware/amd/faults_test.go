package amd_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// measured is an MI300X in CPX that measures all that GPUs can measure, and that two processes use.
func measured() *amdtest.Tree {
	files := amdtest.NewTree(amdtest.MI300XCPX())
	for name, text := range map[string]string{
		"gpu_busy_percent": "50", "mem_busy_percent": "25", "mem_info_vram_used": "1024", "hwmon/hwmon3/power1_average": "75000000",
		"ras/umc_err_count": "ue: 0\nce: 2\n", sysfs.AvailableMemoryFile: "NPS1, NPS4",
	} {
		files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+name, text+"\n")
	}
	for pid, id := range map[string]string{"7": "24003", "9": "1"} {
		files.Set(sysfs.ProcessDir+"/"+pid+"/vram_"+id, "512")
		files.Set(sysfs.ProcessDir+"/"+pid+"/stats_"+id+"/cu_occupancy", "19")
	}
	return files
}

// A file that is there and cannot be read is never taken for one that is not.
func TestNoFaultIsTakenForAbsence(t *testing.T) {
	const address, device = "0000:05:00.0", "read " + sysfs.DevicesDir + "/0000:05:00.0/"
	ctx := t.Context()
	cpx := gpu.Placement{GPU: address, Type: gpu.TypeXCP, Profile: "cpx", Start: 3}
	for name, test := range map[string]struct {
		operation func(d *amd.Driver) error
		optional  []string
	}{
		"usage":        {func(d *amd.Driver) error { _, err := d.Usage(ctx, address); return err }, nil},
		"health":       {func(d *amd.Driver) error { return d.CheckHealth(ctx, address) }, nil},
		"obstacles":    {func(d *amd.Driver) error { _, err := d.Obstacles(ctx, address, false); return err }, []string{"read /proc/7/comm", "read /proc/9/comm", device + "compute_partition_config/supported_xcp_configs", device + "numa_node"}},
		"live":         {func(d *amd.Driver) error { _, err := d.Live(ctx, address); return err }, nil},
		"edits":        {func(d *amd.Driver) error { _, err := d.Edits(ctx, cpx); return err }, nil},
		"memory mode":  {func(d *amd.Driver) error { return d.SetMemoryPartition(ctx, "NPS4") }, nil},
		"common edits": {func(d *amd.Driver) error { _, err := d.CommonEdits(ctx, []string{address}); return err }, nil},
	} {
		var tree *amdtest.Tree
		host := func() *amdtest.Tree {
			tree = measured()
			if name == "memory mode" { // nobody uses the driver
				tree.Remove(sysfs.ProcessDir + "/7")
				tree.Remove(sysfs.ProcessDir + "/9")
			}
			return tree
		}
		assert.Equal(t, test.optional, amdtest.Optional(t, host, func(files sysfs.Files) error {
			d, err := amd.New(amd.Config{Files: files, ReloadPatience: 1, Reload: func(context.Context) error {
				tree.Set(sysfs.ModuleDir+"/version", "6.17")
				tree.Set(sysfs.DevicesDir+"/"+address+"/"+sysfs.MemoryFile, "NPS4")
				return nil
			}})
			require.NoError(t, err)
			return test.operation(d)
		}), name)
	}
}
