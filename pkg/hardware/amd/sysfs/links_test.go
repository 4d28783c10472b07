package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
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
