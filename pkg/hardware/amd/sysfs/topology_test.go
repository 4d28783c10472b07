package sysfs_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestTopologyThatIsHidden(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XCPX())
	files.Fails["read "+sysfs.NodesDir+"/3/properties"] = unix.EPERM
	_, err := sysfs.InTask(t.Context(), files, sysfs.ReadTopology)
	assert.ErrorIs(t, err, unix.EPERM)
	assert.ErrorContains(t, err, "the plugin must be privileged")
}

// amdgpu can be without KFD, as for graphics alone.
func TestTopologyThatDoesNotExist(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XCPX())
	files.Remove("/sys/class/kfd")
	top, err := sysfs.InTask(t.Context(), files, sysfs.ReadTopology)
	require.NoError(t, err)
	assert.Empty(t, top.Nodes)
}

// Folders are listed by name: 10 comes before 9.
func TestNodesAreInTheOrderOfTheirNumbers(t *testing.T) {
	g := amdtest.MI300XCPX()
	for i := range g.Nodes {
		g.Nodes[i].Number = 5 + i
	}
	top, err := sysfs.InTask(t.Context(), amdtest.NewTree(g), sysfs.ReadTopology)
	require.NoError(t, err)
	assert.IsIncreasing(t, lists.Map(top.Nodes, func(n sysfs.Node) int { return n.Number }))
}

func TestMemoryOfANode(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XCPX())
	memory := func(banks ...string) (int64, error) {
		for i, text := range banks {
			files.Set(fmt.Sprintf("%s/2/mem_banks/%d/properties", sysfs.NodesDir, i), text)
		}
		return sysfs.InTask(t.Context(), files, func(task *sysfs.Task) (int64, error) {
			return sysfs.NodeWithBanks(2, len(banks)).Memory(task)
		})
	}
	n, err := memory("heap_type 1\nsize_in_bytes 10\n", "heap_type 2\nsize_in_bytes 5\n", "heap_type 0\nsize_in_bytes 100\n")
	require.NoError(t, err)
	assert.EqualValues(t, 15, n, "the GPU's own, not the machine's")
	_, err = memory("heap_type 1\nsize_in_bytes 18446744073709551615\n")
	assert.ErrorContains(t, err, "which cannot be")
	files.Remove(sysfs.NodesDir + "/2/mem_banks")
	_, err = sysfs.InTask(t.Context(), files, func(task *sysfs.Task) (int64, error) { return sysfs.NodeWithBanks(2, 1).Memory(task) })
	assert.Error(t, err)
}

func TestTopologyThatChangesWhileItIsRead(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XCPX())
	files.OnRead = func(name string) {
		if name == sysfs.NodesDir+"/4/properties" {
			files.Mu.Lock()
			files.OnRead = nil
			files.Mu.Unlock()
			files.Replace(amdtest.MI300XSPX())
		}
	}
	top, err := sysfs.InTask(t.Context(), files, sysfs.ReadTopology)
	require.NoError(t, err)
	require.Len(t, top.Nodes, 1, "not some of the old ones and some of the new")
	assert.EqualValues(t, 304, top.Nodes[0].ComputeUnits)

	changes := 0
	files.OnRead = func(name string) {
		if name == sysfs.NodesDir+"/2/properties" {
			changes++
			files.Set(sysfs.TopologyDir+"/generation_id", fmt.Sprint("another ", changes))
		}
	}
	_, err = sysfs.InTask(t.Context(), files, sysfs.ReadTopology)
	assert.ErrorContains(t, err, "changes faster than it can be read")
}
