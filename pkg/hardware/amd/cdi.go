package amd

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// devicePaths are the device nodes of a partition. A GPU's primary node
// (/dev/dri/card0) is never among them: through it the driver puts work on
// whichever partition has least to do.
func devicePaths(p sysfs.Partition) []string {
	return []string{sysfs.KFDDevice, filepath.Join(sysfs.RenderDir, sysfs.RenderName(p.Node.Minor))}
}

// CommonEdits are empty: the programs of a container bring their own libraries.
func (d *Driver) CommonEdits(context.Context, []string) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{}, nil
}

// Edits says what a container needs to see one placement. Render nodes are
// looked up now: their numbers change with a reload of the driver. No variable
// like ROCR_VISIBLE_DEVICES is set, since its numbers count what the device
// nodes let a container see, and would filter twice. A monitor gets all partitions.
func (d *Driver) Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	var want xcp.Mode
	if p.Type != gpu.TypeMonitor {
		var err error
		if want, err = modeOf(p); err != nil {
			return nil, err
		}
	}
	return forGPU(ctx, d, p.GPU, func(c *gpuHandle) (*cdispecs.ContainerEdits, error) {
		l, err := c.Confirmed()
		if err != nil {
			return nil, err
		}
		parts := slices.DeleteFunc(slices.Clone(l.Partitions), func(q sysfs.Partition) bool {
			return q.Node == nil || p.Type == gpu.TypeXCP && q.Index != p.Start
		})
		if p.Type != gpu.TypeMonitor && l.Mode != want {
			return nil, fmt.Errorf("GPU %s is in mode %s and has no partition of mode %s", c.PCIAddress, l.Mode, want)
		}
		if len(parts) == 0 {
			return nil, c.missingNode(l, p.Start)
		}
		return c.edits(parts)
	})
}

// edits are the nodes of some partitions, each once.
func (c *gpuHandle) edits(parts []sysfs.Partition) (*cdispecs.ContainerEdits, error) {
	edits := &cdispecs.ContainerEdits{}
	for _, p := range parts {
		if err := c.CheckMinor(p); err != nil {
			return nil, err
		}
		for _, name := range devicePaths(p) {
			if slices.ContainsFunc(edits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return n.Path == name }) {
				continue
			}
			if err := c.addNode(edits, name); err != nil {
				return nil, err
			}
		}
	}
	return edits, nil
}

// addNode adds a device node and its group: the nodes belong to render or video,
// by other numbers in each distribution, and a container whose user is not root
// could not open them.
func (c *gpuHandle) addNode(edits *cdispecs.ContainerEdits, name string) error {
	info, err := c.Stat(name)
	if err != nil {
		return err
	}
	if info.Mode&fs.ModeCharDevice == 0 {
		return fmt.Errorf("GPU %s: %s is not a character device", c.PCIAddress, name)
	}
	node := &cdispecs.DeviceNode{Path: name, Type: "c", Major: int64(info.Major), Minor: int64(info.Minor), Permissions: "rw"}
	if root := c.driver.cfg.HostDevRoot; root != "/" {
		node.HostPath = filepath.Join(root, name)
	}
	edits.DeviceNodes = append(edits.DeviceNodes, node)
	if info.GID != 0 && !slices.Contains(edits.AdditionalGIDs, info.GID) {
		edits.AdditionalGIDs = append(edits.AdditionalGIDs, info.GID)
	}
	return nil
}
