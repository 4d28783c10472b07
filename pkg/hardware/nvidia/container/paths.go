package container

import (
	"path/filepath"
	"strings"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// hostPath turns a path that this process knows into the host's name for it.
// The longer root wins where one lies in the other.
func (d *Files) hostPath(path string) string {
	type pair struct{ here, host string }
	first, second := pair{d.cfg.DriverRoot, d.cfg.HostDriverRoot}, pair{d.cfg.DevRoot, d.cfg.HostDevRoot}
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

// below gives the rest of a path behind a root, counting whole components:
// /run/driver-old is not below /run/driver.
func below(path, root string) (string, bool) {
	root = filepath.Clean(root)
	if root == "/" {
		return path, filepath.IsAbs(path)
	}
	rest, ok := strings.CutPrefix(path, root)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// toHost rewrites edits for the runtime, which works with the host's paths.
//
// What nvcdi gives is left alone where it means the container: container paths,
// and the arguments of hooks that run in the container's file system.
func (d *Files) toHost(edits *cdispecs.ContainerEdits) {
	for _, node := range edits.DeviceNodes {
		d.nodeToHost(node)
	}
	for _, mount := range edits.Mounts {
		mount.HostPath = d.hostPath(mount.HostPath)
	}
	for _, hook := range edits.Hooks {
		if hook.HookName == "createContainer" || hook.HookName == "startContainer" {
			continue
		}
		for i, arg := range hook.Args {
			hook.Args[i] = d.hostPath(arg)
		}
	}
}

// nodeToHost makes a device node complete, so that the runtime need not look at
// a node on the host: there it may have another name, or not exist.
func (d *Files) nodeToHost(node *cdispecs.DeviceNode) {
	if node.Major != 0 {
		node.Type, node.HostPath = "c", ""
		return
	}
	if node.HostPath == "" {
		node.HostPath = filepath.Join(d.cfg.DevRoot, node.Path)
	}
	if node.HostPath = d.hostPath(node.HostPath); node.HostPath == node.Path {
		node.HostPath = ""
	}
}
