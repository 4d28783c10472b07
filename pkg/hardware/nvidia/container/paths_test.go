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
	assert.Equal(t, &cdispecs.DeviceNode{Path: "/dev/nvidia0", Type: "c", Major: 195}, edits.DeviceNodes[0], "complete: no host path")
	assert.Equal(t, "/driver/dev/nvidia1", edits.DeviceNodes[1].HostPath)
	assert.Equal(t, "/driver/dev/nvidia2", edits.DeviceNodes[2].HostPath)
	assert.Equal(t, "/driver/usr/lib64/libcuda.so.1", edits.Mounts[0].HostPath)
	assert.Equal(t, "/usr/lib64/libcuda.so.1", edits.Mounts[0].ContainerPath)
	assert.Equal(t, "/host/driver/in/container", edits.Hooks[0].Args[1])
	assert.Equal(t, "/driver", edits.Hooks[1].Args[2])
}
