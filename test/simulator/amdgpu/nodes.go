package amdgpu

import (
	"path/filepath"
	"strconv"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// RenderGID is the group that the device nodes belong to, as that of "render" on
// many distributions. Its number is that of no group of the nodes' users.
const RenderGID = 992

// nodeMode: who is not in the group may not use the node.
const nodeMode = 0o660

// makeNodes makes the device nodes. All render nodes are there at all times, and
// which of them lead to a partition changes with the mode.
func (k *Kernel) makeNodes(st *state) error {
	dev := filepath.Join(k.root, "dev")
	nodes := []disk.DeviceNode{{Path: filepath.Join(dev, "kfd"), Major: st.KFDMajor}}
	v := k.view(st, &Faults{})
	for gpuIndex := range k.inventory.AMD {
		first := k.inventory.RenderMinor(gpuIndex)
		for partition := range k.inventory.AMD[gpuIndex].RenderMinors() {
			if minor := first + partition; v.hasMinor(gpuIndex, partition) {
				path := filepath.Join(dev, "dri", "renderD"+strconv.Itoa(minor))
				nodes = append(nodes, disk.DeviceNode{Path: path, Major: st.DRMMajor, Minor: minor})
			}
		}
	}
	for _, n := range nodes {
		n.Mode, n.GID = nodeMode, RenderGID
		plain, err := n.Make()
		if err != nil {
			return err
		}
		if plain {
			k.plainNodes.Store(true)
		}
	}
	return nil
}
