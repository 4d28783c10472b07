package node

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/hardwarereport"
)

// Config is what the plugin is started with.
type Config struct {
	// Machine is what the plugin runs on.
	Machine  hardware.Machine `json:"-"`
	NodeName string
	// PodUID tells the plugin's sockets from those of another plugin that works
	// on the node during a rolling update. Empty: there is no other.
	PodUID types.UID
	// Installation names the installation that the plugin belongs to. Plugins of
	// two installations must not work on one node.
	Installation string
	// KubeletDir is the kubelet's folder, by the same path here and on the host.
	KubeletDir string
	CDIDir     string
	// HostRoot is where the host's root folder is mounted.
	HostRoot    string
	HTTPAddress string
	// IgnoreOtherOwners publishes GPUs that another system serves, too.
	IgnoreOtherOwners bool
	// AdoptForeign removes partitions that Tranche did not make when nobody uses
	// them; otherwise they are left alone.
	AdoptForeign bool
	// LegacyResources are the extended resources that whole GPUs stand for beside
	// their classes, by vendor.
	LegacyResources map[gpu.Vendor]string
	// DevicePluginConfigsDir holds configuration files of NVIDIA's device plugin, which
	// say how GPUs are shared. It may be missing.
	DevicePluginConfigsDir string
	// MPSDir is the folder of the MPS daemons, by the same path here and on the host.
	MPSDir string
	// MPSSharedMemory is the size of the /dev/shm that the containers of one MPS daemon
	// have together, in bytes; zero: mps.DefaultShmSize.
	MPSSharedMemory int64
	// MPSLauncher is the command that becomes an MPS daemon; empty: this program.
	MPSLauncher []string
	// GPUNodes are where the controller says which profile the node should follow, and
	// the plugin how the node is.
	GPUNodes client.GPUNodes `json:"-"`
	// MemoryModes allows to load AMD's driver anew, which a change of the memory mode
	// takes.
	MemoryModes bool
	// NodeLabels labels the node as NVIDIA's feature discovery does.
	NodeLabels bool
	// UninstallOrder names the ConfigMap (namespace/name) that tells the plugin
	// that Tranche is being uninstalled. Empty: nothing does.
	UninstallOrder string
	// LookInterval is how often the GPUs are looked at; zero: every 5 s.
	LookInterval time.Duration

	// procRoot is the host's /proc; empty: the plugin's own, which is the same, because its
	// pod is in the host's PID namespace.
	procRoot string
	// restorePause is how long after the first try what was lost is put back again; zero:
	// a minute.
	restorePause time.Duration
	// orderPatience is how long the first publication waits for the GPUNode; zero: 30 s.
	orderPatience time.Duration
	// taintSettle is how long schedulers may take to notice taints; zero: a second.
	taintSettle time.Duration
	// releasePatience is how long each step of the release of a driver may take; zero: 30 s.
	releasePatience time.Duration
	// beforeStep is claim.Config's: tests kill the plugin in it.
	beforeStep func(context.Context, ledger.Record, *plan.Step)
}

// proc is the host's /proc.
func (c *Config) proc() string { return cmp.Or(c.procRoot, "/proc") }

// idleInterval is how often it is looked for drivers that were not there.
func (c *Config) idleInterval() time.Duration {
	return 3 * cmp.Or(c.LookInterval, defaultLookInterval)
}

// DataDir is the plugin's own folder.
func (c *Config) DataDir() string { return filepath.Join(c.KubeletDir, "plugins", gpu.DriverName) }

func (c *Config) healthFile() string { return filepath.Join(c.DataDir(), "health.json") }

func (c *Config) sharingFile() string { return filepath.Join(c.DataDir(), "sharing.json") }

func (c *Config) rebootFile() string { return filepath.Join(c.DataDir(), "reboot.json") }

func (c *Config) rosterFile() string { return filepath.Join(c.DataDir(), "gpus.json") }

// sockets are patterns of the sockets that plugins of this node may have.
func (c *Config) sockets() []string {
	return []string{
		filepath.Join(c.registrarDir(), gpu.DriverName+"*-reg.sock"),
		filepath.Join(c.DataDir(), "dra*.sock"),
		filepath.Join(c.DataDir(), hardwarereport.Sockets),
	}
}

func (c *Config) registrarDir() string { return filepath.Join(c.KubeletDir, "plugins_registry") }
