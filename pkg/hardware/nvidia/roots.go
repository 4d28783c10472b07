package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nvmlLibrary is the file that makes a folder a driver root.
const nvmlLibrary = "libnvidia-ml.so.1"

// driverRoots are the places where drivers are installed, by the host's names:
// packages; the GPU operator's driver container; Container-Optimized OS on GKE;
// images that keep everything NVIDIA in one folder.
var driverRoots = []string{"/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia"}

// libraryFolders are the places of libraries below a driver root.
var libraryFolders = []string{
	"usr/lib64",
	"usr/lib/x86_64-linux-gnu",
	"usr/lib/aarch64-linux-gnu",
	"usr/lib/x86_64-linux-gnu/nvidia/current",
	"usr/lib/aarch64-linux-gnu/nvidia/current",
	"lib64",
	"lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
	"lib",
}

// FindDriverRoot looks for the driver of a host whose root file system this
// process sees at hostRoot. configured is the folder that an administrator
// named, by the host's name; it is looked at alone. Empty means to look at the
// usual places.
//
// root is what it found by the host's name, for Config.HostDriverRoot and,
// joined to hostRoot, Config.DriverRoot. libraryPath is the NVML library as
// this process can open it.
func FindDriverRoot(hostRoot, configured string) (root, libraryPath string, err error) {
	roots := driverRoots
	if configured != "" {
		roots = []string{filepath.Clean(configured)}
	}
	for _, root := range roots {
		for _, folder := range libraryFolders {
			path, ok := resolveBelow(hostRoot, filepath.Join(root, folder, nvmlLibrary))
			if ok {
				return root, path, nil
			}
		}
	}
	return "", "", fmt.Errorf(
		"no %s below %s in %s (looked in their %s): install the NVIDIA driver on this node, or name its folder with the driver root setting",
		nvmlLibrary, hostRoot, strings.Join(roots, ", "), strings.Join(libraryFolders, ", "))
}

// FindDevRoot tells which folder has the host's dev/nvidiactl in it, by the
// host's name: a driver container keeps its own device nodes in its root.
func FindDevRoot(hostRoot, driverRoot string) string {
	if _, err := os.Stat(filepath.Join(hostRoot, driverRoot, "dev/nvidiactl")); err == nil {
		return driverRoot
	}
	return "/"
}

// resolveBelow follows the links of a file that belongs to another root file
// system, where an absolute link means that root and not ours.
func resolveBelow(hostRoot, path string) (string, bool) {
	const tooMany = 8
	for range tooMany {
		here := filepath.Join(hostRoot, path)
		info, err := os.Lstat(here)
		if err != nil {
			return "", false
		}
		if info.Mode()&os.ModeSymlink == 0 {
			return here, info.Mode().IsRegular()
		}
		target, err := os.Readlink(here)
		if err != nil {
			return "", false
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", false
}
