package node

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hook"
)

// Config is the configuration of the plugin.
type Config struct {
	// Machine is the machine that the plugin runs on.
	Machine  hardware.Machine `json:"-"`
	NodeName string
	// Version is the version of the plugin, for people.
	Version string `json:"-"`
	// PodUID makes the plugin's sockets differ from those of another plugin on the node
	// during a rolling update. Empty: there is no other.
	PodUID types.UID
	// Installation identifies the Helm release. Plugins of two releases must not work on
	// one node.
	Installation string
	// KubeletDir is the kubelet's folder, with the same path in the pod and on the host.
	KubeletDir string
	CDIDir     string
	// HostRoot is the mount point of the host's root folder.
	HostRoot    string
	HTTPAddress string
	// IgnoreOtherSystems: GPUs are published even if another system serves them.
	IgnoreOtherSystems bool
	// ManagedNodes selects the nodes whose GPUs Tranche manages, by their labels; nil: all.
	ManagedNodes labels.Selector `json:"-"`
	// RemoveIdleForeign: partitions that Tranche did not create and nobody uses are removed.
	RemoveIdleForeign bool
	// ExtendedResources has the extended resource that whole GPUs stand for, beside their
	// device classes, by vendor ("nvidia.com/gpu").
	ExtendedResources map[gpu.Vendor]string
	// MIGExtendedResources: the settings of GPUs say what nvidia.com/mig-<profile> stands for.
	MIGExtendedResources bool
	// Hook is the program that limits the memory of shares when containers start. It is copied to
	// the host. Empty: the kernel driver limits no shares.
	Hook string
	// UntestedLimits: limits of the kernel that were never tried on a GPU are offered.
	UntestedLimits bool
	// CgroupRoot is the folder of the root of all control groups of cgroup v2; empty:
	// /sys/fs/cgroup, which is where NVIDIA's driver expects it.
	CgroupRoot string
	// MPSDir is the folder of the MPS daemons, with the same path in the pod and on the
	// host.
	MPSDir string
	// MPSSharedMemory is the size of the /dev/shm that all containers of one MPS daemon
	// share, in bytes; zero: mps.DefaultShmSize.
	MPSSharedMemory int64
	// MPSLauncher is the command that becomes an MPS daemon; empty: this program.
	MPSLauncher []string
	// GPUNodes is the client for GPUNodes.
	GPUNodes client.GPUNodes `json:"-"`
	// MemoryModes allows changes of AMD's memory mode, which reload the driver.
	MemoryModes bool
	// NodeLabels: the node gets labels of NVIDIA's GPU feature discovery and AMD's node labeller.
	NodeLabels bool
	// GPUResources: the node's status gets GPU memory and compute.
	GPUResources bool
	// DaemonSet (namespace/name) created the plugin's pod: if it is being deleted when the plugin
	// ends, Tranche is being uninstalled. Empty: there is none.
	DaemonSet string
	// UsageInterval is how often it is measured how much the GPUs are used; zero: never.
	UsageInterval time.Duration
	// LookInterval is how often the GPUs are checked; zero: every 5 s.
	LookInterval time.Duration

	// procRoot is the host's /proc; empty: /proc, because the pod is in the host's PID
	// namespace.
	procRoot string
	// reconcileInterval is how often ledger, hardware and API are compared; zero: every 5 min.
	reconcileInterval time.Duration
	// restorePause is the first pause before restoring a profile is retried; zero: a
	// minute.
	restorePause time.Duration
	// firstRetry is the first pause before a device that could not be prepared is tried
	// again; zero: 15 s.
	firstRetry time.Duration
	// taintsPatience is how long the first publication waits for the GPUNode; zero: 30 s.
	taintsPatience time.Duration
	// taintSettle is how long schedulers may take to notice taints; zero: a second.
	taintSettle time.Duration
	// releasePatience is how long each step of the release of a driver may take; zero: 30 s.
	releasePatience time.Duration
	// beforeStep is claim.Config's BeforeStep: tests kill the plugin in it.
	beforeStep func(context.Context, ledger.Record, *steps.Step)
}

func (c *Config) proc() string { return cmp.Or(c.procRoot, "/proc") }

// defaultLookInterval is how often the GPUs are checked.
const defaultLookInterval = 5 * time.Second

func (c *Config) lookInterval() time.Duration { return cmp.Or(c.LookInterval, defaultLookInterval) }

// idleInterval is how often opening missing drivers is retried.
func (c *Config) idleInterval() time.Duration { return 3 * c.lookInterval() }

// DataDir is the plugin's own folder.
func (c *Config) DataDir() string { return filepath.Join(c.KubeletDir, "plugins", names.DriverName) }

func (c *Config) profileFile() string { return filepath.Join(c.DataDir(), "profile.json") }

func (c *Config) healthFile() string { return filepath.Join(c.DataDir(), "health.json") }

func (c *Config) sharingFile() string { return filepath.Join(c.DataDir(), "sharing.json") }

func (c *Config) rebootFile() string { return filepath.Join(c.DataDir(), "reboot.json") }

func (c *Config) cgroupRoot() string { return cmp.Or(c.CgroupRoot, "/sys/fs/cgroup") }

func (c *Config) rosterFile() string { return filepath.Join(c.DataDir(), "gpus.json") }

// sockets returns patterns that match the sockets of all plugins on this node.
func (c *Config) sockets() []string {
	return []string{
		filepath.Join(c.registrarDir(), names.DriverName+"*-reg.sock"),
		filepath.Join(c.DataDir(), "dra*.sock"),
		filepath.Join(c.DataDir(), reportSockets),
		hook.Sockets(c.DataDir()),
	}
}

// podResources is the kubelet's socket that tells which containers use a claim.
func (c *Config) podResources() string {
	return filepath.Join(c.HostRoot, c.KubeletDir, "pod-resources/kubelet.sock")
}

func (c *Config) registrarDir() string { return filepath.Join(c.KubeletDir, "plugins_registry") }
