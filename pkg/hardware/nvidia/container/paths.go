package container

import (
	"path/filepath"
	"strings"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// hostPath translates a path of this process into the host's. The longer root counts if one
// contains the other.
func (f *Files) hostPath(path string) string {
	type pair struct{ here, host string }
	first, second := pair{f.cfg.DriverRoot, f.cfg.HostDriverRoot}, pair{f.cfg.DevRoot, f.cfg.HostDevRoot}
	if len(second.here) > len(first.here) {
		first, second = second, first
	}
	for _, root := range []pair{first, second} {
		if rest, ok := below(path, root.here); ok {
			return filepath.Join(root.host, rest)
		}
	}
	return path
}

// below returns the rest of a path after a root, by whole components: /run/driver-old is
// not below /run/driver.
func below(path, root string) (string, bool) {
	root = filepath.Clean(root)
	if root == "/" {
		return path, filepath.IsAbs(path)
	}
	rest, ok := strings.CutPrefix(path, root)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// toHost translates edits for the container runtime, which works with the host's paths. What
// refers to the container stays: container paths, and arguments of hooks that run in the
// container's file system.
func (f *Files) toHost(edits *cdispecs.ContainerEdits) {
	for _, node := range edits.DeviceNodes {
		f.nodeToHost(node)
	}
	for _, mount := range edits.Mounts {
		mount.HostPath = f.hostPath(mount.HostPath)
	}
	for _, hook := range edits.Hooks {
		if hook.HookName == "createContainer" || hook.HookName == "startContainer" {
			continue
		}
		for i, arg := range hook.Args {
			hook.Args[i] = f.hostPath(arg)
		}
	}
}

// nodeToHost completes a device node, so that the runtime needs no node on the host, where
// it may have another name or not exist.
func (f *Files) nodeToHost(node *cdispecs.DeviceNode) {
	if node.Major != 0 {
		node.Type, node.HostPath = "c", ""
		return
	}
	if node.HostPath == "" {
		node.HostPath = filepath.Join(f.cfg.DevRoot, node.Path)
	}
	if node.HostPath = f.hostPath(node.HostPath); node.HostPath == node.Path {
		node.HostPath = ""
	}
}
