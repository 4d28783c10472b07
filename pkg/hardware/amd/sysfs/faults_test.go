package sysfs_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

const device = sysfs.DevicesDir + "/0000:05:00.0"

// complete is an MI300X with every file that a driver can have. A chip without an id is in no table.
func complete(chip string, optional bool) *amdtest.Tree {
	g := amdtest.MI300XCPX()
	g.Device = chip
	files := amdtest.NewTree(g)
	for name, text := range map[string]string{"vendor": "0x1002", "subsystem_vendor": "0x1002", "subsystem_device": "0x74a1"} {
		files.Set(path.Join(device, name), text)
	}
	if !optional {
		files.Remove(path.Join(device, sysfs.AvailableComputeFile))
		return files
	}
	files.Set(path.Join(device, "product_name"), "AMD Instinct MI300X OAM")
	files.Set(path.Join(device, sysfs.AvailableMemoryFile), "NPS1, NPS4")
	for name, text := range map[string]string{
		sysfs.ConfigModes: "SPX, CPX", sysfs.SelectorFile: "CPX", sysfs.ConfigMemory: "NPS1, NPS4",
		sysfs.ConfigDir + "/xcc/num_inst": "1", sysfs.ConfigDir + "/dec/num_inst": "1", sysfs.ConfigDir + "/dec/num_shared": "1", sysfs.ConfigDir + "/jpeg/num_inst": "5",
	} {
		files.Set(path.Join(device, name), text)
	}
	files.OnWrite = func(name, text string) error {
		if name == path.Join(device, sysfs.SelectorFile) {
			files.Set(path.Join(device, sysfs.ConfigDir, "xcc/num_inst"), map[string]string{"SPX": "8", "CPX": "1"}[text])
		}
		return nil
	}
	return files
}

// A file that is there and cannot be read is never taken for one that is not: its error comes out. What
// GPUs can be without is not reported of them.
func TestNoFaultIsTakenForAbsence(t *testing.T) {
	const configs = "read compute_partition_config/supported_xcp_configs"
	withoutEngines := []string{
		"read compute_partition_config/dec/num_inst", "read compute_partition_config/dec/num_shared",
		"read compute_partition_config/jpeg/num_inst", "read compute_partition_config/jpeg/num_shared",
		"read compute_partition_config/supported_nps_configs", configs,
		"read compute_partition_config/xcc/num_inst", "read compute_partition_config/xcc/num_shared", "read compute_partition_config/xcp_config",
	}
	inventory := func(m *sysfs.Machine) error {
		_, err := m.Inventory(t.Context())
		if broken := new(gpu.InventoryError); errors.As(err, &broken) {
			return broken.GPUs[0]
		}
		return err
	}
	modes := func(m *sysfs.Machine) error { _, err := m.Modes(t.Context(), address); return err }
	for _, test := range []struct {
		name     string
		ask      func(m *sysfs.Machine) error
		files    func() *amdtest.Tree
		optional []string
	}{
		{"inventory", inventory, func() *amdtest.Tree { return complete("0x74a1", true) }, append(slices.Clip(withoutEngines), "read numa_node")},
		{"inventory of an older driver", inventory, func() *amdtest.Tree { return complete("0x74a1", false) }, []string{configs, "read numa_node"}},
		{"modes", modes, func() *amdtest.Tree { return complete("0x74a1", true) }, withoutEngines},
		{"modes of an older driver", modes, func() *amdtest.Tree { return complete("0x0001", false) }, []string{configs}},
	} {
		optional := amdtest.Optional(t, test.files, func(files sysfs.Files) error { return test.ask(sysfs.New(files, klog.Logger{})) })
		for i := range optional {
			optional[i] = strings.Replace(optional[i], device+"/", "", 1)
		}
		assert.Equal(t, test.optional, optional, test.name)
	}
}
