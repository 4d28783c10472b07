package nvidia

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// host lays out files, and links where there is a target, below a folder that
// stands for a host's root.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, target := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target == "" {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		} else {
			require.NoError(t, os.Symlink(target, path))
		}
	}
	return root
}

func TestFindDriverRoot(t *testing.T) {
	for _, test := range []struct {
		name       string
		files      map[string]string
		configured string
		root       string
		library    string
	}{
		{"Debian's package", map[string]string{
			"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1":          "libnvidia-ml.so.580.159.04",
			"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04": "",
		}, "", "/", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04"},
		{"Red Hat's package", map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}, "", "/", "usr/lib64/libnvidia-ml.so.1"},
		{"the GPU operator's driver container", map[string]string{
			"run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "",
		}, "", "/run/nvidia/driver", "run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"},
		{"Container-Optimized OS", map[string]string{"home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1": ""},
			"", "/home/kubernetes/bin/nvidia", "home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1"},
		{"all in one folder", map[string]string{"usr/local/nvidia/lib64/libnvidia-ml.so.1": ""},
			"", "/usr/local/nvidia", "usr/local/nvidia/lib64/libnvidia-ml.so.1"},
		{"the host's own before others", map[string]string{
			"usr/lib64/libnvidia-ml.so.1": "", "usr/local/nvidia/lib64/libnvidia-ml.so.1": "",
		}, "", "/", "usr/lib64/libnvidia-ml.so.1"},
		{"a folder that somebody named", map[string]string{
			"usr/lib64/libnvidia-ml.so.1": "", "opt/driver/lib64/libnvidia-ml.so.1": "",
		}, "/opt/driver/", "/opt/driver", "opt/driver/lib64/libnvidia-ml.so.1"},
		{"a link that is absolute on the host", map[string]string{
			"usr/lib64/libnvidia-ml.so.1":          "/opt/nv/libnvidia-ml.so.580.159.04",
			"opt/nv/libnvidia-ml.so.580.159.04":    "",
			"usr/lib64/libnvidia-ml.so.580.159.04": "/nowhere",
		}, "", "/", "opt/nv/libnvidia-ml.so.580.159.04"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hostRoot := host(t, test.files)
			root, library, err := FindDriverRoot(hostRoot, test.configured)
			require.NoError(t, err)
			assert.Equal(t, test.root, root)
			assert.Equal(t, filepath.Join(hostRoot, test.library), library)
		})
	}
}

func TestFindDriverRootSaysWhereItLooked(t *testing.T) {
	hostRoot := host(t, map[string]string{
		"usr/lib64/libnvidia-ml.so.1": "/gone",             // a link to nothing
		"lib64/libnvidia-ml.so.1":     "libnvidia-ml.so.1", // a link to itself
	})
	_, _, err := FindDriverRoot(hostRoot, "")
	for _, want := range []string{"libnvidia-ml.so.1", hostRoot, "/run/nvidia/driver", "/usr/local/nvidia", "usr/lib64", "driver root setting"} {
		assert.ErrorContains(t, err, want)
	}
	_, _, err = FindDriverRoot(hostRoot, "/opt/driver")
	assert.ErrorContains(t, err, "/opt/driver")
	assert.NotContains(t, err.Error(), "/run/nvidia/driver", "what was named is looked at alone")
}

func TestFindDevRoot(t *testing.T) {
	hostRoot := host(t, map[string]string{"run/nvidia/driver/dev/nvidiactl": "", "dev/nvidiactl": ""})
	assert.Equal(t, "/run/nvidia/driver", FindDevRoot(hostRoot, "/run/nvidia/driver"))
	assert.Equal(t, "/", FindDevRoot(hostRoot, "/usr/local/nvidia"))
	assert.Equal(t, "/", FindDevRoot(hostRoot, "/"))
}

func TestHostPath(t *testing.T) {
	operator := Config{DriverRoot: "/host/run/nvidia/driver", HostDriverRoot: "/run/nvidia/driver"}
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
		{Config{}, "/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1"},
	} {
		test.cfg.NVML = &trap{}
		d, err := New(test.cfg)
		require.NoError(t, err)
		assert.Equal(t, test.want, d.hostPath(test.path), "%+v", test.cfg)
	}
}

func TestToHostLeavesTheContainersPathsAlone(t *testing.T) {
	d, err := New(Config{NVML: &trap{}, DriverRoot: "/host/driver", HostDriverRoot: "/driver"})
	require.NoError(t, err)
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
	d.toHost(edits)
	assert.Equal(t, &cdispecs.DeviceNode{Path: "/dev/nvidia0", Type: "c", Major: 195}, edits.DeviceNodes[0], "complete: no host path")
	assert.Equal(t, "/driver/dev/nvidia1", edits.DeviceNodes[1].HostPath)
	assert.Equal(t, "/driver/dev/nvidia2", edits.DeviceNodes[2].HostPath)
	assert.Equal(t, "/driver/usr/lib64/libcuda.so.1", edits.Mounts[0].HostPath)
	assert.Equal(t, "/usr/lib64/libcuda.so.1", edits.Mounts[0].ContainerPath)
	assert.Equal(t, "/host/driver/in/container", edits.Hooks[0].Args[1])
	assert.Equal(t, "/driver", edits.Hooks[1].Args[2])
}

func TestNew(t *testing.T) {
	_, err := New(Config{})
	assert.ErrorContains(t, err, "Config.NVML")

	d, err := New(Config{NVML: &trap{}, DriverRoot: "/host/x", HostDriverRoot: "/x"})
	require.NoError(t, err)
	assert.Equal(t, "/host/x", d.cfg.DevRoot)
	assert.Equal(t, "/x", d.cfg.HostDevRoot, "the device root goes with the driver root")

	d, err = New(Config{NVML: &trap{}, DriverRoot: "/host/x", HostDriverRoot: "/x", DevRoot: "/"})
	require.NoError(t, err)
	assert.Equal(t, "/", d.cfg.HostDevRoot)
}
