package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/renameio/v2"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
)

// errNoHardware says that the node has no card that we could serve, or no
// driver for it yet.
var errNoHardware = errors.New("no GPU driver on this node")

// hardware is the node's cards, real or simulated.
type hardware struct {
	*nvidia.Driver
	// loadID identifies this boot and this load of the driver: partitions end
	// with either.
	loadID string
}

// openHardware finds the cards of the node.
func openHardware(ctx context.Context, c *Config) (*hardware, error) {
	config, err := hardwareConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	config.Logger = klog.FromContext(ctx)
	if config.CDIHookPath, err = installHook(c); err != nil {
		return nil, err
	}
	driver, err := nvidia.New(config)
	if err != nil {
		return nil, err
	}
	loadID, err := driver.LoadID()
	if err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	if err := driver.Open(ctx); err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	return &hardware{Driver: driver, loadID: loadID}, nil
}

func hardwareConfig(ctx context.Context, c *Config) (config nvidia.Config, err error) {
	if inventory := c.inventory(); inventory != "" {
		return simulated(ctx, c, inventory)
	}
	root, library, err := nvidia.FindDriverRoot(c.HostRoot, c.NVIDIADriverRoot)
	if err != nil {
		return config, errors.Join(errNoHardware, err)
	}
	devRoot := nvidia.FindDevRoot(c.HostRoot, root)
	return nvidia.Config{
		NVML:           nvml.New(nvml.WithLibraryPath(library)),
		DriverRoot:     filepath.Join(c.HostRoot, root),
		HostDriverRoot: root,
		DevRoot:        filepath.Join(c.HostRoot, devRoot),
		HostDevRoot:    devRoot,
	}, nil
}

func simulated(ctx context.Context, c *Config, name string) (config nvidia.Config, err error) {
	inv, err := inventory.Load(name, c.SimulateDir)
	if err != nil {
		return config, err
	}
	root := c.SimulateRoot
	library, err := simulate.New(inv, simulate.Options{Root: root, Seed: c.NodeName})
	if err != nil {
		return config, fmt.Errorf("simulate %s: %w", name, err)
	}
	klog.FromContext(ctx).Info("The GPUs of this node are simulated", "inventory", name, "root", root)
	return nvidia.Config{
		NVML:       library,
		DriverRoot: filepath.Join(root, "driver"),
		ProcRoot:   root,
		SysRoot:    filepath.Join(root, "sys"),
	}, nil
}

// inventory names what to simulate on this node, nothing for real hardware.
func (c *Config) inventory() string {
	if name, ok := c.SimulateNodes[c.NodeName]; ok {
		return name
	}
	return c.Simulate
}

// installHook puts the program that CDI hooks run where the host finds it, and
// returns the path. The runtime runs hooks on the host, outside our container.
func installHook(c *Config) (string, error) {
	target := filepath.Join(c.dataDir(), "nvidia-cdi-hook")
	program, err := os.Open(c.CDIHook)
	if err != nil {
		return "", fmt.Errorf("read the program for CDI hooks: %w", err)
	}
	defer program.Close()
	same, err := sameContent(program, target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the installed program for CDI hooks: %w", err)
	}
	if same {
		return target, nil
	}
	if err := replaceProgram(target, program); err != nil {
		return "", fmt.Errorf("install the program for CDI hooks on the host: %w", err)
	}
	return target, nil
}

// replaceProgram puts a program in place. It is copied through a small buffer:
// what a start has once had in memory stays with the process for long.
func replaceProgram(target string, program io.ReadSeeker) error {
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := renameio.NewPendingFile(target, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(target)))
	if err != nil {
		return err
	}
	defer file.Cleanup() //nolint:errcheck // nothing is left to do when it is in place
	if _, err := io.Copy(file, program); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}

// sameContent tells whether a file has the content of a reader.
func sameContent(content io.Reader, path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(content, a)
		m, errB := io.ReadFull(file, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}

// list asks the hardware what is there. Cards that did not answer come back as
// problems by PCI address; an error means that nothing is known.
func (h *hardware) list(ctx context.Context) (found []gpu.GPU, problems map[string]string, err error) {
	found, err = h.Inventory(ctx)
	problems = map[string]string{}
	if err == nil {
		return found, problems, nil
	}
	var broken *gpu.InventoryError
	if !errors.As(err, &broken) {
		return nil, nil, err
	}
	for _, card := range broken.Cards {
		problems[card.PCIAddress] = card.Err.Error()
	}
	return found, problems, nil
}
