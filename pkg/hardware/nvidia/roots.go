package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nvmlLibrary is the file by which a driver root is recognised.
const nvmlLibrary = "libnvidia-ml.so.1"

// driverRoots are where drivers are installed on the host: by packages, by the GPU operator's
// driver container, on GKE's Container-Optimized OS, and in images with one folder for all of
// NVIDIA.
var driverRoots = []string{"/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia"}

// libraryFolders are where libraries are below a driver root.
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

// FindDriverRoot looks for the driver of a host whose root file system this process sees at
// hostRoot. configured is the folder on the host that an administrator has set, the only one
// that counts then. Empty: the usual places.
//
// root is the folder on the host, for Config.HostDriverRoot and, joined to hostRoot,
// Config.DriverRoot. libraryPath is the path of the NVML library for this process.
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

// FindDevRoot returns the folder on the host that contains dev/nvidiactl: a driver container
// has its own device nodes.
func FindDevRoot(hostRoot, driverRoot string) string {
	if _, err := os.Stat(filepath.Join(hostRoot, driverRoot, "dev/nvidiactl")); err == nil {
		return driverRoot
	}
	return "/"
}

// resolveBelow follows the links of a file in another root file system, where absolute links
// start at that root.
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
