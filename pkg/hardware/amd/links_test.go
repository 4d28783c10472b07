package amd_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// groups counts the GPUs of each link group.
func (m *machine) groups() map[string]int {
	all := map[string]int{}
	for _, g := range m.gpus() {
		all[g.LinkGroup]++
	}
	return all
}

// A hive is a group, whatever the mode of its GPUs: the whole GPU is used in SPX.
func TestLinkGroups(t *testing.T) {
	of := func(text string) func(*models.Inventory) {
		return func(inv *models.Inventory) {
			other, err := models.ParseInventory([]byte(text))
			require.NoError(t, err)
			other.AMDDriver.Delays = models.AMDDelays{}
			*inv = *other
		}
	}
	hive := func(inv *models.Inventory, index int) string {
		return fmt.Sprintf("xgmi-%016x", inv.Hive("node", index))
	}
	m := simulated(t, "mi300x8")
	assert.Equal(t, map[string]int{hive(m.inventory, 0): 8}, m.groups())
	m = simulated(t, "mi308x8")
	assert.Equal(t, map[string]int{hive(m.inventory, 0): 8}, m.groups(), "partitioned")
	m = simulated(t, "mi300x8", of("gpus: [{model: MI300X, count: 2}, {model: MI325X, count: 2}, {model: MI210, count: 2}]"))
	assert.Equal(t, map[string]int{hive(m.inventory, 0): 2, hive(m.inventory, 2): 2, "": 2}, m.groups())
	m = simulated(t, "mi300x8", of("gpus: [{model: MI300X}]"))
	assert.Equal(t, map[string]int{"": 1}, m.groups())
}

// A file that cannot be read takes no GPU out of the inventory.
func TestHopsThatAreNotReadable(t *testing.T) {
	m := simulated(t, "mi300x8")
	d, err := amd.New(amd.Config{Files: unreadable{m.files, "/xgmi_num_hops"}, HostDevRoot: m.root})
	require.NoError(t, err)
	require.NoError(t, d.Open(t.Context()))
	gpus, err := d.Inventory(t.Context())
	require.NoError(t, err)
	require.Len(t, gpus, 8)
	assert.Empty(t, gpus[0].LinkGroup)
}

type unreadable struct {
	sysfs.Files
	suffix string
}

func (u unreadable) ReadFile(name string) ([]byte, error) {
	if strings.HasSuffix(name, u.suffix) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrPermission}
	}
	return u.Files.ReadFile(name)
}
