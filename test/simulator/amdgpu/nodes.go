package amdgpu

import (
	"path/filepath"
	"strconv"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// The groups that device nodes belong to: "render" and, of cards, "video", as on many distributions.
// The number of the first is that of no group of the nodes' users.
const (
	RenderGID = 992
	VideoGID  = 44
)

// nodeMode: who is not in the group may not use the node.
const nodeMode = 0o660

// makeNodes makes the device nodes. All cards and render nodes are there at all times, and
// which of them lead to a partition changes with the mode.
func (k *Kernel) makeNodes(st *state) error {
	dev := filepath.Join(k.root, "dev")
	nodes := []disk.DeviceNode{{Path: filepath.Join(dev, "kfd"), Major: st.KFDMajor, GID: RenderGID}}
	add := func(name string, minor, gid int) {
		path := filepath.Join(dev, "dri", name+strconv.Itoa(minor))
		nodes = append(nodes, disk.DeviceNode{Path: path, Major: st.DRMMajor, Minor: minor, GID: gid})
	}
	v := k.view(st, &Faults{})
	for gpuIndex := range k.inventory.AMD {
		first := k.inventory.RenderMinor(gpuIndex)
		for partition := range k.inventory.AMD[gpuIndex].RenderMinors() {
			if minor := first + partition; v.hasMinor(gpuIndex, partition) {
				add("renderD", minor, RenderGID)
				add("card", v.primaryMinor(minor), VideoGID)
			}
		}
	}
	for _, n := range nodes {
		n.Mode = nodeMode
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
