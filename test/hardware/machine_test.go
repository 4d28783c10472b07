package hardware

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

var (
	driverRoot = flag.String("driver-root", "", "folder of the NVIDIA driver; empty: search, as the plugin does")
	cdiHook    = flag.String("cdi-hook", "", "path of nvidia-cdi-hook; empty: beside this program, in /usr/bin, or none")
	cdiDir     = flag.String("cdi-dir", "/var/run/cdi", "folder from which containerd reads CDI files")
)

// reader is the part of the vendors' drivers that changes nothing. The checks that are not asked for
// by -partition use nothing else.
type reader interface {
	Inventory(ctx context.Context) ([]gpu.GPU, error)
	Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error)
	Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error)
	CommonEdits(ctx context.Context, pciAddresses []string) (*cdispecs.ContainerEdits, error)
	CheckHealth(ctx context.Context, pciAddress string) error
	LoadID() (string, error)
	Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)
	WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error
	Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error)
}

// settingsReader is what NVIDIA's driver has beside that.
type settingsReader interface {
	Settings(ctx context.Context, pciAddress string) (gpu.Settings, error)
}

// machine is a node with GPUs, real or simulated.
type machine struct {
	reader
	// driver is the same with what changes GPUs: for -partition.
	driver *nvidia.Driver
	// nvml tells what the driver of pkg/hardware/nvidia does not.
	nvml nvml.Interface
	// kernel has the files of AMD's driver.
	kernel sysfs.Files
	// devRoot is the folder that has dev/nvidia0 in it.
	devRoot string
	// hook is the program that CDI hooks run, empty when there is none.
	hook string
	// simulated has no device nodes that a container could open.
	simulated bool
	// hasNodes reports whether device nodes could be made for the simulation.
	hasNodes bool
	// driverRoot is the driver's folder, cuda its libcuda, empty when there is none.
	driverRoot, cuda string
	// hasMPS reports whether the driver, or the host, has the programs of MPS, and
	// mpsDir is a folder for its daemons.
	hasMPS bool
	mpsDir string
}

// patience is how long one check may wait for the GPUs.
const patience = time.Minute

// ctx is a context for one check.
func (m *machine) ctx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// realMachine opens the driver of this machine. The test is skipped where there
// is none.
func realMachine(t *testing.T) *machine {
	t.Helper()
	root, library, err := nvidia.FindDriverRoot("/", *driverRoot)
	if err != nil {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	}
	devRoot := nvidia.FindDevRoot("/", root)
	if _, err := os.Stat(filepath.Join(devRoot, "dev/nvidiactl")); err != nil {
		t.Skipf("the driver's libraries are here (%s), but no GPU answers: %v", library, err)
	}
	hook := findHook()
	m := open(t, nvidia.Config{
		NVML: nvml.New(nvml.WithLibraryPath(library)), DriverRoot: root, DevRoot: devRoot, CDIHookPath: hook,
	})
	m.devRoot, m.hook, m.hasNodes = devRoot, hook, true
	m.driverRoot, m.cuda = root, filepath.Join(filepath.Dir(library), "libcuda.so.1")
	if _, err := os.Stat(m.cuda); err != nil {
		m.cuda = ""
	}
	m.hasMPS = hasMPS(root)
	t.Logf("driver root %s, device nodes below %s, NVML %s", root, devRoot, library)
	return m
}

// hasMPS looks for the program where pkg/hardware/mps does first.
func hasMPS(driverRoot string) bool {
	for _, root := range []string{driverRoot, "/"} {
		for _, dir := range []string{"usr/bin", "bin", "usr/sbin", "usr/local/bin", "opt/bin"} {
			if _, err := os.Stat(filepath.Join(root, dir, "nvidia-cuda-mps-control")); err == nil {
				return true
			}
		}
	}
	return false
}

// findHook finds the program of the CDI hooks. The plugin brings its own; here
// it is copied beside the test, or that of NVIDIA's toolkit is taken.
func findHook() string {
	candidates := []string{"/usr/bin/nvidia-cdi-hook"}
	if self, err := os.Executable(); err == nil {
		candidates = append([]string{filepath.Join(filepath.Dir(self), "nvidia-cdi-hook")}, candidates...)
	}
	if *cdiHook != "" {
		candidates = []string{*cdiHook}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func open(t *testing.T, config nvidia.Config) *machine {
	t.Helper()
	driver, err := nvidia.New(config)
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	t.Cleanup(func() { _ = driver.Close(context.Background()) })
	return &machine{reader: driver, driver: driver, nvml: config.NVML, mpsDir: memory.SocketDir(t)}
}
