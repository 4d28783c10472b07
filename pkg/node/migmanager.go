package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// NVIDIA's mig-manager changes the MIG configuration of a node's GPUs as a node label tells
// it to. It is recognised by what no tenant can write: its process, as far as that has the
// privileges that changing MIG takes, and a node label. Names and labels of pods prove
// nothing. Nor does the label nvidia.com/gpu.deploy.mig-manager=true: the GPU operator sets it
// on each node with MIG, whether it deploys a mig-manager or not.
const (
	// migManagerProgram is its program (NVIDIA/mig-parted, cmd/nvidia-mig-manager).
	migManagerProgram = "nvidia-mig-manager"
	// migStateLabel says how far it is with a change. It is "pending" before it touches
	// anything, "rebooting" when it has asked for that, and "success" or "failed" at the
	// end (NVIDIA/mig-parted, pkg/mig/reconfigure).
	migStateLabel = "nvidia.com/mig.config.state"
)

// migManagerOwner is mig-manager if there is one: running tells that its process is there.
func migManagerOwner(node *corev1.Node, running bool) (owner, bool) {
	o := owner{
		vendor: gpu.NVIDIA,
		name:   "mig-manager",
		found:  "process " + migManagerProgram + " of mig-manager runs here",
		remedy: "keep mig-manager off this node (label nvidia.com/gpu.deploy.mig-manager=false)",
	}
	if running {
		return o, true
	}
	if node == nil {
		return owner{}, false
	}
	state := node.Labels[migStateLabel]
	if state != "pending" && state != "rebooting" {
		return owner{}, false
	}
	o.found = "its label " + migStateLabel + "=" + state + " says that mig-manager is changing them"
	o.remedy += ", and remove label " + migStateLabel + " if mig-manager is gone"
	return o, true
}

// migManagers looks for the process of mig-manager. Only one goroutine uses it.
type migManagers struct {
	// proc is the host's /proc.
	proc    string
	running bool
}

// look looks again, and tells whether the answer has changed. When an error keeps it from
// looking, the last answer stays.
func (m *migManagers) look() (changed bool, err error) {
	running, err := runsPrivileged(m.proc, migManagerProgram)
	if err != nil {
		return false, fmt.Errorf("look for a running mig-manager: %w", err)
	}
	changed = running != m.running
	m.running = running
	return changed, nil
}

const (
	// commLength is how much of a program's name the kernel keeps (TASK_COMM_LEN, less
	// the zero byte).
	commLength = 15
	// capSysAdmin is the bit of CAP_SYS_ADMIN, which changing MIG takes.
	capSysAdmin = 1 << 21
)

// runsPrivileged tells whether a program runs on the host with CAP_SYS_ADMIN in the user
// namespace of this plugin, which is the host's. A container's process can have any name, but
// that capability only if it is privileged.
func runsPrivileged(proc, program string) (bool, error) {
	files, err := procfs.NewFS(proc)
	if err != nil {
		return false, err
	}
	self, err := files.Self()
	if err != nil {
		return false, err
	}
	ours, err := self.Namespaces()
	if err != nil {
		return false, err
	}
	all, err := files.AllProcs()
	if err != nil {
		return false, err
	}
	name := program[:min(len(program), commLength)]
	var failed error
	for _, p := range all {
		privileged, err := isPrivileged(p, name, ours["user"])
		switch {
		case privileged:
			return true, nil
		case err != nil && !ended(err):
			failed = cmp.Or(failed, fmt.Errorf("process %d: %w", p.PID, err))
		}
	}
	return false, failed
}

// isPrivileged tells whether a process has a name, and CAP_SYS_ADMIN in a user namespace.
func isPrivileged(p procfs.Proc, name string, user procfs.Namespace) (bool, error) {
	comm, err := p.Comm()
	if err != nil || comm != name {
		return false, err
	}
	status, err := p.NewStatus()
	if err != nil || status.CapEff&capSysAdmin == 0 {
		return false, err
	}
	namespaces, err := p.Namespaces()
	return err == nil && namespaces["user"] == user, err
}

// ended tells whether an error says that a process is not there any more.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
