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
	"github.com/tranche-dev/tranche/test/simulator/disk"
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
	instance                     string
	pluginDir                    string
}

// machine is what was installed.
type machine struct {
	*options
	// inventory is empty on a node without simulated GPUs.
	inventory string
	// kernel is the file system with AMD's files, nil without GPUs of AMD's.
	kernel *kernelfs.Mounted
}

func (m *machine) String() string {
	if m.inventory == "" {
		return "this node has no simulated GPUs"
	}
	return fmt.Sprintf("the simulated GPUs of %s are in %s", m.inventory, m.root)
}

// close ends with the program what cannot be without it, and removes the machine if the plugin has
// left the node. If another instance of this program serves the machine now, nothing is its own.
func (m *machine) close() error {
	if serves, err := m.serves(); err != nil || !serves {
		return err
	}
	if m.kernel != nil {
		if err := m.kernel.Close(); err != nil {
			return err
		}
	}
	if m.pluginDir == "" {
		return nil
	}
	if _, err := os.Stat(m.pluginDir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(m.remove(), disk.RemoveFile(m.servedBy()))
}

// servedBy is the file that names the instance of this program that serves the machine. It is beside
// the root: a node without simulated GPUs has none.
func (o *options) servedBy() string { return o.root + ".served-by" }

// serves reports whether this instance has installed the machine, and no other has since.
func (o *options) serves() (bool, error) {
	instance, err := os.ReadFile(o.servedBy())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return string(instance) == o.instance, err
}

// remove removes the machine.
func (o *options) remove() error {
	if err := errors.Join(o.unmountGroups(), o.detach()); err != nil {
		return err
	}
	return os.RemoveAll(o.root)
}

// sys is the folder of the machine's /sys.
func (o *options) sys() string { return filepath.Join(o.root, "sys") }

// detach takes the file system of another instance away. That of a program that was killed leads
// nowhere.
func (o *options) detach() error {
	err := unix.Unmount(o.sys(), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s of an earlier instance: %w", o.sys(), err)
	}
	return nil
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
	if err := os.MkdirAll(filepath.Dir(o.root), 0o755); err != nil {
		return nil, err
	}
	// From here on an instance that ends leaves the machine alone.
	if err := disk.RemoveFile(o.servedBy()); err != nil {
		return nil, err
	}
	m := &machine{options: o, inventory: o.inventoryName()}
	if err := m.installDrivers(); err != nil {
		return nil, err
	}
	return m, os.WriteFile(o.servedBy(), []byte(o.instance), 0o600)
}

func (m *machine) installDrivers() error {
	if m.inventory == "" {
		return m.remove()
	}
	inv, err := models.LoadInventory(m.inventory, m.inventories)
	if err != nil {
		return err
	}
	// A file system that another instance serves stays until there is the next one: the plugin reads it.
	if _, err := os.Stat(m.sys()); err != nil || len(inv.AMD) == 0 {
		if err := m.detach(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(m.sys(), 0o755); err != nil {
		return err
	}
	if err := (description.Machine{Inventory: inv.Text, Seed: m.node, Library: m.library}).Write(m.root); err != nil {
		return err
	}
	if len(inv.GPUs) > 0 {
		if err := m.installNVIDIA(inv); err != nil {
			return err
		}
	}
	if len(inv.AMD) > 0 {
		if m.kernel, err = m.serveAMD(inv); err != nil {
			return err
		}
	}
	return nvfiles.InstallPrograms(m.program, filepath.Join(m.root, nvtools.DriverBin), machinePrograms...)
}

func (o *options) installNVIDIA(inv *models.Inventory) error {
	branch, err := symbols.Branch(o.libraryVersion(inv))
	if err != nil {
		return err
	}
	if branch >= firstWithLimits && len(inv.AMD) == 0 { // whose files take the place of sys
		if err := o.mountGroups(); err != nil {
			return err
		}
	}
	_, err = nvdriver.New(inv, nvdriver.Options{
		Root: o.root, Seed: o.node, Tools: o.program, Library: o.library,
		Libraries: map[string]string{
			"libnvidia-ml.so": libraries.Path(o.libraries, branch), "libnvidia-sandboxutils.so": libraries.SandboxPath(o.libraries),
			"libcuda.so": libraries.CUDAPath(o.libraries),
		},
	})
	return err
}

// firstWithLimits is the first branch of NVIDIA's driver that limits memory by control group.
const firstWithLimits = 615

// mountGroups mounts the kernel's control groups of cgroup v2 into the machine. The node may have them
// elsewhere than the driver expects, beside those of cgroup v1.
func (o *options) mountGroups() error {
	if o.hasGroups() {
		return nil
	}
	groups := nvdriver.Groups(o.root)
	if err := os.MkdirAll(groups, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", groups, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup v2 at %s: %w", groups, err)
	}
	return nil
}

// unmountGroups undoes mountGroups. What is below belongs to the kernel and must not be removed.
func (o *options) unmountGroups() error {
	if !o.hasGroups() {
		return nil
	}
	if err := unix.Unmount(nvdriver.Groups(o.root), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the control groups of %s: %w", o.root, err)
	}
	return nil
}

func (o *options) hasGroups() bool {
	var now unix.Statfs_t
	return unix.Statfs(nvdriver.Groups(o.root), &now) == nil && now.Type == unix.CGROUP2_SUPER_MAGIC
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
	if err := o.detach(); err != nil {
		return nil, err
	}
	return kernelfs.Mount(kernel, "/sys", o.sys())
}
