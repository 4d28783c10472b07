package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// cgroupRoots are the mounted hierarchies of control groups: one with cgroup
// v2, one for each controller with v1.
func cgroupRoots() ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return nil, err
	}
	if len(mounts) == 0 {
		return nil, errors.New("no control groups are mounted on this machine (/sys/fs/cgroup): mount them, or start the system with systemd")
	}
	var roots []string
	for _, m := range mounts {
		roots = append(roots, m.Mountpoint)
	}
	return roots, nil
}

// makeCgroup makes a control group in every hierarchy: a kubelet expects its
// root group to exist, with everything that can be limited.
func makeCgroup(group string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := makeIn(root, group); err != nil {
			return fmt.Errorf("make control group %s: %w", group, err)
		}
	}
	return nil
}

func makeIn(root, group string) error {
	parent := root
	for name := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
		child := filepath.Join(parent, name)
		if err := passOnControllers(parent); err != nil {
			return err
		}
		if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := passOnCPUs(parent, child); err != nil {
			return err
		}
		parent = child
	}
	return passOnControllers(parent)
}

// passOnControllers lets the children of a group of cgroup v2 have all
// controllers that it has itself. Groups of v1 know nothing of the kind.
func passOnControllers(group string) error {
	has, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	file := filepath.Join(group, "cgroup.subtree_control")
	passed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(has)) {
		if slices.Contains(strings.Fields(string(passed)), controller) {
			continue
		}
		err := os.WriteFile(file, []byte("+"+controller), 0)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("processes live in %s itself, so cgroup v2 lets nobody divide it: "+
				"this looks like a container that was started without an init; start it with the host's control groups (--cgroupns=host), "+
				"or move its processes into a group below", group)
		}
		// Any other controller that cannot be passed on is missed by the
		// kubelet, if it needs it, and named in its log.
	}
	return nil
}

// passOnCPUs lets a group of cgroup v1's cpuset have the processors and memory
// of its parent: a new one has none, and nothing can run in it.
func passOnCPUs(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(child, file))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		from, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil || strings.TrimSpace(string(from)) == "" {
			continue // cgroup v2, where nothing means the parent's
		}
		if err := os.WriteFile(filepath.Join(child, file), from, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes a control group with all below it from every hierarchy.
// Its processes must have ended; the kernel takes a moment to notice that.
func removeCgroup(group string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var failures []error
		for _, root := range roots {
			failures = append(failures, removeTree(filepath.Join(root, group)))
		}
		err := errors.Join(failures...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func removeTree(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return nil // one that has gone meanwhile is fine
	})
	if err != nil {
		return err
	}
	slices.Reverse(groups) // children before their parents
	for _, group := range groups {
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove control group %s: %w", group, err)
		}
	}
	return nil
}
