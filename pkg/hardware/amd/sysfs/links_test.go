package sysfs_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestOneHop(t *testing.T) {
	for text, want := range map[string]bool{
		"00 41 41 41 41 41 41 41 ": true, // MI300X: links of the third generation
		"01 00 01 01":              true,
		"00 01 02 01":              false, // MI250X: not each to each
		"00 ":                      false, // alone
		"00 00 00":                 false, // the firmware has not told
		"41 41":                    false,
		"":                         false,
		"00 -1":                    false,
		"00 x":                     false,
	} {
		assert.Equal(t, want, sysfs.OneHop(text), text)
	}
}

// GPUs of a hive are a group. They stay one while their links cannot be read.
func TestHive(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX(), secondGPU())
	for _, node := range []int{2, 10} {
		properties := fmt.Sprintf("%s/%d/properties", sysfs.NodesDir, node)
		files.Set(properties, files.Files[properties]+"hive_id 7\n")
	}
	const hops, second = device + "/xgmi_num_hops", sysfs.DevicesDir + "/0000:27:00.0/xgmi_num_hops"
	files.Set(hops, "00 41")
	files.Set(second, "41 00")
	const hive = "xgmi-0000000000000007"
	groups := func() []string { return lists.Map(gpusOf(t, m), func(g gpu.GPU) string { return g.LinkGroup }) }
	assert.Equal(t, []string{hive, hive}, groups())
	files.Refuse("read "+hops, unix.EIO)
	assert.Equal(t, []string{hive, hive}, groups())
	delete(files.Fails, "read "+hops)
	files.Set(hops, "00 42")
	assert.Equal(t, []string{"", ""}, groups())
}

// KFD gives a partitioned GPU in no hive the number of its place on the bus (kfd_device.c). Kernels before 6.5 tell no
// hops: nothing is promised then either.
func TestHiveWithoutHops(t *testing.T) {
	const device = sysfs.DevicesDir + "/0000:05:00.0/"
	for name, test := range map[string]struct{ hive, hops, want string }{
		"one GPU of a hive": {"7", "00 41", ""},
		"no hops":           {"1280", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files, m := machineOf(t, amdtest.MI300XSPX())
			properties := sysfs.NodesDir + "/2/properties"
			files.Set(properties, files.Files[properties]+"hive_id "+test.hive+"\n")
			if test.hops != "" {
				files.Set(device+"xgmi_num_hops", test.hops+"\n")
			}
			assert.Equal(t, test.want, gpusOf(t, m)[0].LinkGroup)
		})
	}
}
