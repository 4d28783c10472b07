package nvidia

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/nvidiatest"
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

func TestNew(t *testing.T) {
	_, err := New(Config{})
	assert.ErrorContains(t, err, "Config.NVML")

	d, err := New(Config{NVML: &nvidiatest.Trap{}, DriverRoot: "/host/x", HostDriverRoot: "/x"})
	require.NoError(t, err)
	assert.Equal(t, "/host/x", d.cfg.DevRoot)
	assert.Equal(t, "/x", d.cfg.HostDevRoot, "the device root goes with the driver root")

	d, err = New(Config{NVML: &nvidiatest.Trap{}, DriverRoot: "/host/x", HostDriverRoot: "/x", DevRoot: "/"})
	require.NoError(t, err)
	assert.Equal(t, "/", d.cfg.HostDevRoot)
}
