package nvfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// Minors of the nodes that are not GPUs (nvidia-modprobe).
const (
	ctlMinor     = 255
	modesetMinor = 254
	uvmMinor     = 0
	uvmTools     = 1
)

// ChooseMajors takes three numbers that no driver of the host has.
func ChooseMajors(procDevices string) (nvstate.Majors, error) {
	free, err := disk.FreeMajors(procDevices, 3)
	if err != nil {
		return nvstate.Majors{}, err
	}
	return nvstate.Majors{Frontend: free[0], UVM: free[1], Caps: free[2]}, nil
}

// Layout is the files of NVIDIA's driver on one machine.
type Layout struct {
	// Root is the machine's folder.
	Root          string
	DriverVersion string
	// GPUs are the machine's and UUIDs theirs, by index.
	GPUs  []models.GPU
	UUIDs []string
	// Tools is the program that becomes those of the driver; empty: scripts do nothing in
	// their place.
	Tools string
	// Libraries are the files of libraries ("libnvidia-ml.so"). The others have no functions.
	Libraries map[string]string
	// NoMPS leaves out the programs of MPS.
	NoMPS bool

	// plainNodes is set once a device node could not be made.
	plainNodes atomic.Bool
}

// DriverRoot is the folder below that of the machine that has the driver's own files.
func DriverRoot(root string) string { return filepath.Join(root, "driver") }

// Write writes all files. It changes nothing that is right already, so that a second
// process can start while containers run.
func (l *Layout) Write(st *nvstate.State) error {
	for _, step := range []func(*nvstate.State) error{
		l.writeNodes, l.writeProc, l.writeSys, l.writeDriver, l.SyncCapabilities,
	} {
		if err := step(st); err != nil {
			return err
		}
	}
	return nil
}

// writeNodes makes the device nodes of the driver and of each GPU.
func (l *Layout) writeNodes(st *nvstate.State) error {
	dev := filepath.Join(DriverRoot(l.Root), "dev")
	type node struct {
		name         string
		major, minor int
	}
	nodes := []node{
		{"nvidiactl", st.Majors.Frontend, ctlMinor},
		{"nvidia-modeset", st.Majors.Frontend, modesetMinor},
		{"nvidia-uvm", st.Majors.UVM, uvmMinor},
		{"nvidia-uvm-tools", st.Majors.UVM, uvmTools},
	}
	for i := range l.GPUs {
		nodes = append(nodes, node{"nvidia" + strconv.Itoa(i), st.Majors.Frontend, i})
	}
	for _, x := range nodes {
		if err := l.node(filepath.Join(dev, x.name), 0o666, x.major, x.minor); err != nil {
			return err
		}
	}
	return nil
}

// writeProc writes what the driver shows below /proc.
func (l *Layout) writeProc(st *nvstate.State) error {
	proc := filepath.Join(l.Root, "proc")
	files := map[string]string{
		"driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",

		"driver/nvidia-caps/mig-minors": migMinors(),
		"devices": fmt.Sprintf("Character devices:\n%3d nvidia-frontend\n%3d nvidia-uvm\n%3d nvidia-caps\n\nBlock devices:\n",
			st.Majors.Frontend, st.Majors.UVM, st.Majors.Caps),
		"sys/kernel/random/boot_id": st.BootID + "\n",
	}
	for i, g := range l.GPUs {
		files[filepath.Join("driver/nvidia/gpus", g.PCI, "information")] = fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\n",
			g.Model.ProductName, 100+i, l.UUIDs[i], g.PCI, i, l.DriverVersion)
	}
	for name, content := range files {
		if err := disk.WriteFile(filepath.Join(proc, name), content); err != nil {
			return err
		}
	}
	return nil
}

// writeSys writes the GPUs' sysfs and the NUMA distances.
func (l *Layout) writeSys(st *nvstate.State) error {
	nodes := 0
	for _, g := range l.GPUs {
		if err := writePCI(l.Root, g); err != nil {
			return err
		}
		nodes = max(nodes, g.NUMANode+1)
	}
	for i := range nodes {
		distances := make([]string, nodes)
		for j := range distances {
			distances[j] = "21"
		}
		distances[i] = "10"
		path := filepath.Join(l.Root, "sys/devices/system/node", fmt.Sprintf("node%d", i), "distance")
		if err := disk.WriteFile(path, strings.Join(distances, " ")+"\n"); err != nil {
			return err
		}
	}
	if st.Unloaded {
		return nil
	}
	return l.WriteModule(false)
}

// WriteModule writes sys/module/nvidia, and then what the module makes when it starts. A module that
// is reloaded has another inode number, as in the kernel's sysfs: by it one load of the driver differs
// from the next within a boot.
func (l *Layout) WriteModule(reload bool) error {
	dir := moduleDir(l.Root)
	if _, err := os.Stat(dir); err == nil && !reload {
		return l.writeLoaded()
	}
	// Made beside the old one, which keeps its inode from being used again.
	next := dir + ".next"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	for name, content := range map[string]string{"version": l.DriverVersion, "initstate": "live"} {
		if err := disk.WriteFile(filepath.Join(next, name), content+"\n"); err != nil {
			return err
		}
	}
	if err := RetireModule(l.Root); err != nil {
		return err
	}
	if err := os.Rename(next, dir); err != nil {
		return err
	}
	return l.writeLoaded()
}

// writeLoaded writes what is there as long as the module is.
func (l *Layout) writeLoaded() error {
	if err := disk.WriteFile(modulesFile(l.Root), "nvidia 14426112 0 - Live 0x0000000000000000 (OE)\n"); err != nil {
		return err
	}
	for _, g := range l.GPUs {
		if err := bind(l.Root, g.PCI); err != nil {
			return err
		}
	}
	return disk.WriteFile(versionFile(l.Root), fmt.Sprintf(
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (simulated)\nGCC version:  none\n", l.DriverVersion))
}

func versionFile(root string) string { return filepath.Join(root, "proc/driver/nvidia/version") }

// modulesFile is /proc/modules, which kernels have without modules, too.
func modulesFile(root string) string { return filepath.Join(root, "proc/modules") }

func moduleDir(root string) string { return filepath.Join(root, "sys/module/nvidia") }

// RetireModule moves the folder of an earlier load away. It is kept because the kernel never
// uses an inode number again within a boot, and most file systems would. What the module made
// goes before it.
func RetireModule(root string) error {
	if err := os.Remove(versionFile(root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := disk.WriteFile(modulesFile(root), ""); err != nil {
		return err
	}
	if err := unbind(root); err != nil {
		return err
	}
	dir := moduleDir(root)
	id, err := disk.Identify(dir)
	if err != nil || id == (disk.FileID{}) {
		return err
	}
	retired := filepath.Join(root, "sys/.retired", strconv.FormatUint(id.Inode, 10))
	if err := os.MkdirAll(filepath.Dir(retired), 0o755); err != nil {
		return err
	}
	return os.Rename(dir, retired)
}

// Remove removes the files of a machine.
func Remove(root string) error {
	for _, dir := range []string{"driver", "proc", "sys"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// node makes a character device, or an empty file where the process may not.
func (l *Layout) node(path string, mode os.FileMode, major, minor int) error {
	plain, err := disk.DeviceNode{Path: path, Mode: mode, Major: major, Minor: minor}.Make()
	if plain {
		l.plainNodes.Store(true)
		takePlainNodes()
	}
	return err
}

// HasDeviceNodes reports whether the nodes below dev are character devices. Only root can make
// those; without it they are empty files.
func (l *Layout) HasDeviceNodes() bool { return !l.plainNodes.Load() }

// RemoveDriver removes what a driver of another version installed.
func (l *Layout) RemoveDriver() error {
	for _, dir := range []string{"usr", "lib"} {
		if err := os.RemoveAll(filepath.Join(DriverRoot(l.Root), dir)); err != nil {
			return err
		}
	}
	return nil
}

func writeExecutable(path, content string) error {
	if err := disk.WriteFile(path, content); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// TakePlainNodes is called once if files stand for device nodes. The package plainnodes sets it in
// programs that have nvcdi, which must take them.
var TakePlainNodes func()

var takePlainNodes = sync.OnceFunc(func() {
	if TakePlainNodes != nil {
		TakePlainNodes()
	}
})
