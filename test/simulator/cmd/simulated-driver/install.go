package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/description"
	"github.com/tranche-dev/tranche/test/simulator/kernelfs"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
	"github.com/tranche-dev/tranche/test/simulator/nvml/symbols"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// options are what the flags say.
type options struct {
	node, inventory, inventories string
	nodes                        map[string]string
	root                         string
	libraries, library           string
	program                      string
}

// machine is what was installed.
type machine struct {
	// inventory is empty on a node without simulated GPUs.
	inventory string
	root      string
	// kernel is the file system with AMD's files, nil without GPUs of AMD's.
	kernel *kernelfs.Mounted
}

func (m *machine) String() string {
	if m.inventory == "" {
		return "this node has no simulated GPUs"
	}
	return fmt.Sprintf("the simulated GPUs of %s are in %s", m.inventory, m.root)
}

func (m *machine) close() error {
	if m.kernel == nil {
		return nil
	}
	return m.kernel.Close()
}

// inventoryName names the node's inventory; empty: it has real hardware.
func (o *options) inventoryName() string {
	if name, ok := o.nodes[o.node]; ok {
		return name
	}
	return o.inventory
}

// install makes the machine, or goes on with the one that is there.
func (o *options) install() (*machine, error) {
	m := &machine{inventory: o.inventoryName(), root: o.root}
	if m.inventory == "" {
		return m, nil
	}
	inv, err := models.LoadInventory(m.inventory, o.inventories)
	if err != nil {
		return nil, err
	}
	sys := filepath.Join(o.root, "sys")
	// The file system of a program that was killed is still there, and leads nowhere.
	if err := unix.Unmount(sys, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("unmount %s of an earlier run: %w", sys, err)
	}
	if err := os.MkdirAll(sys, 0o755); err != nil {
		return nil, err
	}
	if err := (description.Machine{Inventory: inv.Text, Seed: o.node, Library: o.library}).Write(o.root); err != nil {
		return nil, err
	}
	if len(inv.GPUs) > 0 {
		if err := o.installNVIDIA(inv); err != nil {
			return nil, err
		}
	}
	if len(inv.AMD) > 0 {
		if m.kernel, err = o.serveAMD(inv); err != nil {
			return nil, err
		}
	}
	return m, nvfiles.InstallPrograms(o.program, filepath.Join(o.root, nvtools.DriverBin), machinePrograms...)
}

func (o *options) installNVIDIA(inv *models.Inventory) error {
	branch, err := symbols.Branch(o.libraryVersion(inv))
	if err != nil {
		return err
	}
	_, err = nvdriver.New(inv, nvdriver.Options{
		Root: o.root, Seed: o.node, Tools: o.program, Library: o.library,
		Libraries: map[string]string{
			"libnvidia-ml.so": libraries.Path(o.libraries, branch), "libnvidia-sandboxutils.so": libraries.SandboxPath(o.libraries),
		},
	})
	return err
}

// libraryVersion is that of the driver whose library is installed.
func (o *options) libraryVersion(inv *models.Inventory) string {
	if o.library != "" {
		return o.library
	}
	return inv.DriverVersion
}

func (o *options) serveAMD(inv *models.Inventory) (*kernelfs.Mounted, error) {
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: o.root, Seed: o.node})
	if err != nil {
		return nil, err
	}
	return kernelfs.Mount(kernel, "/sys", filepath.Join(o.root, "sys"))
}
