package mps

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// controlGroups are the control groups that were made for a daemon, by the host's names. They are kept as
// cgroups.
type controlGroups struct {
	Groups []string `json:"groups"`
}

// groupsName is the control group that those of all daemons are in.
const groupsName = "tranche-mps"

// membership is one line of /proc/<pid>/cgroup: a hierarchy and where in it the
// process is. The hierarchy of cgroup v2 names no controllers.
type membership struct {
	controllers string
	path        string
}

// parseMemberships reads /proc/<pid>/cgroup (cgroups(7)).
func parseMemberships(content string) []membership {
	var all []membership
	for line := range strings.Lines(content) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			all = append(all, membership{controllers: parts[1], path: path.Clean(parts[2])})
		}
	}
	return all
}

// besidePods is the group that the kubelet's pods are in, of a group of one of
// them; false for a group that is none of the kubelet's. The kubelet calls its own
// kubepods or kubepods.slice.
func besidePods(group string) (string, bool) {
	parts := strings.Split(group, "/")
	for i, part := range parts {
		if part == "kubepods" || part == "kubepods.slice" {
			return path.Join("/", path.Join(parts[:i]...)), true
		}
	}
	return "", false
}

// parseHierarchies lists the mounted trees of control groups of /proc/<pid>/mountinfo.
func parseHierarchies(mounts io.Reader) ([]*mountinfo.Info, error) {
	return mountinfo.GetMountsFromReader(mounts, mountinfo.FSTypeFilter("cgroup", "cgroup2"))
}

// serves reports whether a hierarchy is the one of a membership.
func serves(h *mountinfo.Info, m membership) bool {
	if m.controllers == "" {
		return h.FSType == "cgroup2"
	}
	options := strings.Split(h.VFSOptions, ",")
	for controller := range strings.SplitSeq(m.controllers, ",") {
		if !slices.Contains(options, controller) {
			return false
		}
	}
	return true
}

// folderIn is where a group of a hierarchy is found.
func folderIn(h *mountinfo.Info, group string) (string, bool) {
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(h.Root, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return filepath.Join(h.Mountpoint, rest), true
}

// move is one change of control group.
type move struct {
	// to is the folder of the group.
	to string
	// make says that it must be made, and be removed in the end.
	make bool
}

// movesOut are the changes that take a process of a pod out of it, for the daemon
// id. They are none for one that is in no pod: nobody ends it with a pod.
//
// A new cpuset of cgroup v1 has no processors and takes nobody, so there the
// process goes to the group that the pods' groups are in.
func movesOut(memberships []membership, hierarchies []*mountinfo.Info, id string) []move {
	var moves []move
	for _, m := range memberships {
		beside, ok := besidePods(m.path)
		if !ok {
			continue
		}
		for _, h := range hierarchies {
			folder, ok := folderIn(h, beside)
			if !ok || !serves(h, m) {
				continue
			}
			if slices.Contains(strings.Split(m.controllers, ","), "cpuset") {
				moves = append(moves, move{to: folder})
			} else {
				moves = append(moves, move{to: filepath.Join(folder, groupsName, id), make: true})
			}
			break
		}
	}
	return moves
}

// ownMoves are those of this process.
func ownMoves(id string) ([]move, error) {
	memberships, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	hierarchies, err := parseHierarchies(mounts)
	if err != nil {
		return nil, err
	}
	return movesOut(parseMemberships(string(memberships)), hierarchies, id), nil
}

// moveAttempts is how often a group is made that another daemon's end takes away
// again with the group of all.
const moveAttempts = 10

// enter moves this process into the group.
func (m move) enter() error {
	var err error
	for range moveAttempts {
		if m.make {
			if err = os.MkdirAll(m.to, 0o755); err != nil {
				continue
			}
		}
		err = os.WriteFile(filepath.Join(m.to, "cgroup.procs"), []byte("0\n"), 0o644)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("move the MPS daemon to control group %s: %w", m.to, err)
	}
	return nil
}

// killGroup ends every process in a group, by cgroup v2's own means where there
// are such (since Linux 5.14).
func killGroup(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if err == nil {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for field := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 1 {
			continue // 0 is a process that this one cannot see
		}
		errs = append(errs, killIf(pid, func() (bool, error) { return inGroup(dir, pid) }))
	}
	return errors.Join(errs...)
}

// removeGroup removes an empty group, and that of all daemons after the last.
func removeGroup(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the MPS daemon's control group: %w", err)
	}
	if parent := filepath.Dir(dir); filepath.Base(parent) == groupsName {
		_ = os.Remove(parent) // others are in it
	}
	return nil
}
