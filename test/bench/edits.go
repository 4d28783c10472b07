package main

import (
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// What containers need, made up as large as a real driver's: the driver's own
// would need device nodes, which only root can make.
const (
	driverLibraries = 25
	driverHooks     = 6
)

func commonEdits() *cdispecs.ContainerEdits {
	e := &cdispecs.ContainerEdits{
		Env:         []string{"NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu", "NVIDIA_VISIBLE_DEVICES=void"},
		DeviceNodes: deviceNodes("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"),
	}
	for i := range driverLibraries {
		path := fmt.Sprintf("/usr/lib/x86_64-linux-gnu/libnvidia-library-%02d.so.580.159.04", i)
		e.Mounts = append(e.Mounts, &cdispecs.Mount{HostPath: path, ContainerPath: path, Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}})
	}
	for i := range driverHooks {
		hook := &cdispecs.Hook{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "create-symlinks"}}
		for j := range driverHooks {
			hook.Args = append(hook.Args, "--link", fmt.Sprintf("libnvidia-library-%d%d.so.1::/usr/lib/x86_64-linux-gnu/libnvidia-library-%d%d.so", i, j, i, j))
		}
		e.Hooks = append(e.Hooks, hook)
	}
	return e
}

func partitionEdits() *cdispecs.ContainerEdits {
	return &cdispecs.ContainerEdits{DeviceNodes: deviceNodes("nvidia0", "nvidia-caps/nvidia-cap120", "nvidia-caps/nvidia-cap121")}
}

// kfdEdits and renderNodeEdits are what a container needs of AMD's GPUs: two
// device nodes, and the group of the second. Everything else is in its image.
func kfdEdits() *cdispecs.ContainerEdits {
	return &cdispecs.ContainerEdits{DeviceNodes: []*cdispecs.DeviceNode{{Path: "/dev/kfd", Type: "c", Major: 235, Permissions: "rw"}}}
}

func renderNodeEdits(index int) *cdispecs.ContainerEdits {
	minor := int64(128 + index)
	return &cdispecs.ContainerEdits{
		DeviceNodes:    []*cdispecs.DeviceNode{{Path: fmt.Sprintf("/dev/dri/renderD%d", minor), Type: "c", Major: 226, Minor: minor, Permissions: "rw"}},
		AdditionalGIDs: []uint32{109},
	}
}

func deviceNodes(names ...string) []*cdispecs.DeviceNode {
	var nodes []*cdispecs.DeviceNode
	for i, name := range names {
		nodes = append(nodes, &cdispecs.DeviceNode{Path: "/dev/" + name, Type: "c", Major: 195, Minor: int64(i), Permissions: "rwm"})
	}
	return nodes
}
