package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// RunningPods returns the given pods that have running processes on this node. procDir is the
// /proc of the host's PID namespace.
//
// The control group of a process (cgroups(7)) tells its pod: its name contains the pod's UID,
// a container cannot leave it, and it does not depend on the kubelet.
func RunningPods(procDir string, pods []ledger.Pod) ([]ledger.Pod, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	var all procfs.Procs
	files, err := procfs.NewFS(procDir)
	if err == nil {
		all, err = files.AllProcs()
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of the node: %w", err)
	}
	found := map[types.UID]bool{}
	for _, p := range all {
		uid, err := podOf(p)
		if err != nil {
			return nil, err
		}
		found[uid] = uid != ""
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p ledger.Pod) bool { return !found[p.UID] }), nil
}

// PodOf returns the UID of the pod of a process; empty if it is in no pod, or has ended.
func PodOf(procDir string, pid int) (types.UID, error) {
	files, err := procfs.NewFS(procDir)
	if err != nil {
		return "", fmt.Errorf("find the pod of process %d: %w", pid, err)
	}
	p, err := files.Proc(pid)
	switch {
	case ended(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find the pod of process %d: %w", pid, err)
	}
	return podOf(p)
}

func podOf(p procfs.Proc) (types.UID, error) {
	groups, err := p.Cgroups()
	switch {
	case ended(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read which pod process %d belongs to: %w", p.PID, err)
	}
	for _, g := range groups {
		if _, uid := PodGroup(g.Path); uid != "" {
			return uid, nil
		}
	}
	return "", nil
}

// podOfGroup returns the UID of the pod of a control group; empty if it is not one of a pod.
// The kubelet names the group pod<UID>, or, with the systemd driver,
// kubepods-burstable-pod<UID>.slice, with underscores instead of the UID's dashes
// (k8s.io/kubernetes/pkg/kubelet/cm/cgroup_manager_linux.go).
func podOfGroup(name string) string {
	if uid, ok := strings.CutPrefix(name, "pod"); ok {
		return uid
	}
	slice, ok := strings.CutSuffix(name, ".slice")
	if !ok {
		return ""
	}
	if _, uid, ok := strings.Cut(slice, "-pod"); ok {
		return strings.ReplaceAll(uid, "_", "-")
	}
	return ""
}
