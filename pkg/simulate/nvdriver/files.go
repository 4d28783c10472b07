package nvdriver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/simulate/disk"
	"github.com/tranche-dev/tranche/pkg/simulate/nvstate"
)

// Minors of the nodes that are not GPUs (nvidia-modprobe).
const (
	ctlMinor     = 255
	modesetMinor = 254
	uvmMinor     = 0
	uvmTools     = 1
)

// chooseMajors takes three numbers that no driver of the host has.
func chooseMajors(procDevices string) (nvstate.Majors, error) {
	free, err := disk.FreeMajors(procDevices, 3)
	if err != nil {
		return nvstate.Majors{}, err
	}
	return nvstate.Majors{Frontend: free[0], UVM: free[1], Caps: free[2]}, nil
}

func driverRoot(root string) string { return filepath.Join(root, "driver") }

// layout writes the files of the machine. It changes nothing that is right
// already, so that a second process can start while containers run.
func (n *NVML) layout(st *nvstate.State) error {
	for _, step := range []func(*nvstate.State) error{
		n.layoutNodes, n.layoutProc, n.layoutSys, n.layoutDriver, n.syncCapabilities,
	} {
		if err := step(st); err != nil {
			return err
		}
	}
	return nil
}

// layoutNodes makes the device nodes of the driver and of each GPU.
func (n *NVML) layoutNodes(st *nvstate.State) error {
	dev := filepath.Join(driverRoot(n.root), "dev")
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
	for i := range n.devices {
		nodes = append(nodes, node{"nvidia" + strconv.Itoa(i), st.Majors.Frontend, i})
	}
	for _, x := range nodes {
		if err := n.node(filepath.Join(dev, x.name), 0o666, x.major, x.minor); err != nil {
			return err
		}
	}
	return nil
}

// layoutProc writes what the driver shows below /proc.
func (n *NVML) layoutProc(st *nvstate.State) error {
	proc := filepath.Join(n.root, "proc")
	files := map[string]string{
		"driver/nvidia/version": fmt.Sprintf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (simulated)\nGCC version:  none\n", n.inventory.DriverVersion),
		"driver/nvidia/params":  "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",

		"driver/nvidia-caps/mig-minors": migMinors(),
		"devices": fmt.Sprintf("Character devices:\n%3d nvidia-frontend\n%3d nvidia-uvm\n%3d nvidia-caps\n\nBlock devices:\n",
			st.Majors.Frontend, st.Majors.UVM, st.Majors.Caps),
		"sys/kernel/random/boot_id": st.BootID + "\n",
	}
	for i, d := range n.devices {
		g := d.gpu()
		files[filepath.Join("driver/nvidia/gpus", g.PCI, "information")] = fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\n",
			g.Model.ProductName, 100+i, d.uuid, g.PCI, i, n.inventory.DriverVersion)
	}
	for name, content := range files {
		if err := disk.WriteFile(filepath.Join(proc, name), content); err != nil {
			return err
		}
	}
	return nil
}

// layoutSys writes the GPUs' sysfs and the NUMA distances.
func (n *NVML) layoutSys(st *nvstate.State) error {
	nodes := 0
	for i := range n.inventory.GPUs {
		if err := layoutPCI(n.root, n.inventory.GPUs[i]); err != nil {
			return err
		}
		nodes = max(nodes, n.inventory.GPUs[i].NUMANode+1)
	}
	for i := range nodes {
		distances := make([]string, nodes)
		for j := range distances {
			distances[j] = "21"
		}
		distances[i] = "10"
		path := filepath.Join(n.root, "sys/devices/system/node", fmt.Sprintf("node%d", i), "distance")
		if err := disk.WriteFile(path, strings.Join(distances, " ")+"\n"); err != nil {
			return err
		}
	}
	if st.Unloaded {
		return nil
	}
	return n.layoutModule(false)
}

// layoutModule writes sys/module/nvidia. Loading the module anew gives the
// folder another inode number, as the kernel's sysfs does: what tells one load
// of the driver from the next within a boot.
func (n *NVML) layoutModule(anew bool) error {
	dir := filepath.Join(n.root, "sys/module/nvidia")
	if _, err := os.Stat(dir); err == nil && !anew {
		return nil
	}
	// Made beside the old one, which keeps its inode from being used again.
	next := dir + ".next"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	for name, content := range map[string]string{"version": n.inventory.DriverVersion, "initstate": "live"} {
		if err := disk.WriteFile(filepath.Join(next, name), content+"\n"); err != nil {
			return err
		}
	}
	if err := n.retireModule(dir); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// retireModule keeps the folder of an earlier load out of sight: the kernel never
// uses its inode number again within a boot, and most file systems would.
func (n *NVML) retireModule(dir string) error {
	id, err := disk.Identify(dir)
	if err != nil || id == (disk.FileID{}) {
		return err
	}
	retired := filepath.Join(n.root, "retired", strconv.FormatUint(id.Inode, 10))
	if err := os.MkdirAll(filepath.Dir(retired), 0o755); err != nil {
		return err
	}
	return os.Rename(dir, retired)
}

// removeLayout takes away the files of a machine with other GPUs.
func removeLayout(root string) error {
	for _, dir := range []string{"driver", "proc", "sys"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// node makes a character device, or an empty file where the process may not.
func (n *NVML) node(path string, mode os.FileMode, major, minor int) error {
	plain, err := disk.DeviceNode{Path: path, Mode: mode, Major: major, Minor: minor}.Make()
	if plain {
		n.plainNodes.Store(true)
		takePlainNodes()
	}
	return err
}

func writeExecutable(path, content string) error {
	if err := disk.WriteFile(path, content); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}
