package container

import (
	"testing"

	"github.com/stretchr/testify/assert"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// same is a driver whose device nodes are in its root.
func same(here, host string) Config {
	return Config{DriverRoot: here, HostDriverRoot: host, DevRoot: here, HostDevRoot: host}
}

func TestHostPath(t *testing.T) {
	operator := same("/host/run/nvidia/driver", "/run/nvidia/driver")
	packages := Config{DriverRoot: "/host", HostDriverRoot: "/", DevRoot: "/", HostDevRoot: "/"}
	nested := Config{DriverRoot: "/host", HostDriverRoot: "/", DevRoot: "/host/sim/driver", HostDevRoot: "/var/sim"}
	for _, test := range []struct {
		cfg        Config
		path, want string
	}{
		{operator, "/host/run/nvidia/driver/usr/lib64/libcuda.so.1", "/run/nvidia/driver/usr/lib64/libcuda.so.1"},
		{operator, "/host/run/nvidia/driver", "/run/nvidia/driver"},
		{operator, "/host/run/nvidia/driver-old/libcuda.so.1", "/host/run/nvidia/driver-old/libcuda.so.1"},
		{packages, "/host/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1"},
		{packages, "/dev/nvidia0", "/dev/nvidia0"},
		{nested, "/host/sim/driver/dev/nvidia0", "/var/sim/dev/nvidia0"},
		{nested, "/host/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1"},
		{same("/host/driver/", "/driver"), "/host/driver/usr/lib64/libcuda.so.1", "/driver/usr/lib64/libcuda.so.1"},
		{same("/", "/sysroot"), "/usr/lib64/libcuda.so.1", "/sysroot/usr/lib64/libcuda.so.1"},
		{same("/", "/"), "/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1"},
	} {
		assert.Equal(t, test.want, New(test.cfg).hostPath(test.path), "%+v", test.cfg)
	}
}

func TestToHostLeavesTheContainersPathsAlone(t *testing.T) {
	edits := &cdispecs.ContainerEdits{
		DeviceNodes: []*cdispecs.DeviceNode{
			{Path: "/dev/nvidia0", HostPath: "/host/driver/dev/nvidia0", Major: 195},
			{Path: "/dev/nvidia1", HostPath: "/host/driver/dev/nvidia1"},
			{Path: "/dev/nvidia2"},
		},
		Mounts: []*cdispecs.Mount{{HostPath: "/host/driver/usr/lib64/libcuda.so.1", ContainerPath: "/usr/lib64/libcuda.so.1"}},
		Hooks: []*cdispecs.Hook{
			{HookName: "createContainer", Path: "/hook", Args: []string{"hook", "/host/driver/in/container"}},
			{HookName: "createRuntime", Path: "/hook", Args: []string{"hook", "--driver-root", "/host/driver"}},
		},
	}
	New(same("/host/driver", "/driver")).toHost(edits)
	assert.Equal(t, &cdispecs.ContainerEdits{
		DeviceNodes: []*cdispecs.DeviceNode{
			{Path: "/dev/nvidia0", Type: "c", Major: 195}, // complete: no host path
			{Path: "/dev/nvidia1", HostPath: "/driver/dev/nvidia1"},
			{Path: "/dev/nvidia2", HostPath: "/driver/dev/nvidia2"},
		},
		Mounts: []*cdispecs.Mount{{HostPath: "/driver/usr/lib64/libcuda.so.1", ContainerPath: "/usr/lib64/libcuda.so.1"}},
		Hooks: []*cdispecs.Hook{
			{HookName: "createContainer", Path: "/hook", Args: []string{"hook", "/host/driver/in/container"}},
			{HookName: "createRuntime", Path: "/hook", Args: []string{"hook", "--driver-root", "/driver"}},
		},
	}, edits)
	node := &cdispecs.DeviceNode{Path: "/dev/nvidia0"}
	New(same("/host", "/")).nodeToHost(node)
	assert.Equal(t, &cdispecs.DeviceNode{Path: "/dev/nvidia0"}, node, "it has the same name on the host")
}

// What CUDA needs is there, or what is missing is named.
func TestCheckComplete(t *testing.T) {
	edits := &cdispecs.ContainerEdits{}
	f := New(Config{})
	assert.ErrorContains(t, f.checkComplete(edits), "no libcuda.so below driver root")
	edits.Mounts = []*cdispecs.Mount{{ContainerPath: "/usr/lib64/libcuda.so.580.159.04"}}
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		assert.ErrorContains(t, f.checkComplete(edits), "no device node "+path+" below")
		edits.DeviceNodes = append(edits.DeviceNodes, &cdispecs.DeviceNode{Path: path})
	}
	assert.NoError(t, f.checkComplete(edits))
}

// A GPU instance that cannot draw gets nothing of the GPU's display part.
func TestWithoutDisplay(t *testing.T) {
	edits := &cdispecs.ContainerEdits{
		DeviceNodes: []*cdispecs.DeviceNode{{Path: "/dev/nvidia0"}, {Path: "/dev/dri/card1"}, {Path: "/dev/dri/renderD129"}},
		Hooks:       []*cdispecs.Hook{{HookName: "createContainer", Args: []string{"nvidia-cdi-hook", "create-symlinks"}}},
	}
	withoutDisplay(edits)
	assert.Equal(t, &cdispecs.ContainerEdits{DeviceNodes: []*cdispecs.DeviceNode{{Path: "/dev/nvidia0"}}}, edits)
}
