package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// majors are the character device numbers of the simulated driver.
type majors struct {
	Frontend int `json:"frontend"` // nvidiaN, nvidiactl, nvidia-modeset
	UVM      int `json:"uvm"`
	Caps     int `json:"caps"`
}

// Minors of the nodes that are not cards (nvidia-modprobe).
const (
	ctlMinor     = 255
	modesetMinor = 254
	uvmMinor     = 0
	uvmTools     = 1
)

// firstMajor is where the search for free majors starts. Linux hands out no
// character major from 512 on (CHRDEV_MAJOR_MAX), so that no driver can ever
// take one of ours: opening such a node fails with ENXIO.
const firstMajor = 1195

// chooseMajors takes three numbers that no driver of the host has.
func chooseMajors(procDevices string) (majors, error) {
	taken, err := takenMajors(procDevices)
	if err != nil {
		return majors{}, err
	}
	next := firstMajor
	free := func() int {
		for taken[next] {
			next++
		}
		next++
		return next - 1
	}
	return majors{Frontend: free(), UVM: free(), Caps: free()}, nil
}

// takenMajors reads the character devices of /proc/devices.
func takenMajors(path string) (map[int]bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	taken := map[int]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Block devices") {
			break
		}
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				taken[n] = true
			}
		}
	}
	return taken, nil
}

func driverRoot(root string) string { return filepath.Join(root, "driver") }

// layout writes the files of the machine. It changes nothing that is right
// already, so that a second process can start while containers run.
func (n *NVML) layout(st *state) error {
	for _, step := range []func(*state) error{
		n.layoutNodes, n.layoutProc, n.layoutSys, n.layoutDriver, n.syncCapabilities,
	} {
		if err := step(st); err != nil {
			return err
		}
	}
	return nil
}

// layoutNodes makes the device nodes of the driver and of each card.
func (n *NVML) layoutNodes(st *state) error {
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
func (n *NVML) layoutProc(st *state) error {
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
		if err := writeFile(filepath.Join(proc, name), content); err != nil {
			return err
		}
	}
	return nil
}

// layoutSys writes the cards' sysfs and the NUMA distances.
func (n *NVML) layoutSys(*state) error {
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
		if err := writeFile(path, strings.Join(distances, " ")+"\n"); err != nil {
			return err
		}
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
		if err := writeFile(filepath.Join(next, name), content+"\n"); err != nil {
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
	id, err := identify(dir)
	if err != nil || id == (fileID{}) {
		return err
	}
	retired := filepath.Join(n.root, "retired", strconv.FormatUint(id.Inode, 10))
	if err := os.MkdirAll(filepath.Dir(retired), 0o755); err != nil {
		return err
	}
	return os.Rename(dir, retired)
}

// removeLayout takes away the files of a machine with other cards.
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
	rdev := unix.Mkdev(uint32(major), uint32(minor))
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == rdev {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := removeFile(path); err != nil {
		return err
	}
	err := unix.Mknod(path, unix.S_IFCHR|uint32(mode.Perm()), int(rdev))
	if errors.Is(err, unix.EPERM) {
		n.plainNodes.Store(true)
		return writeFile(path, "")
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("device node %s: %w", path, err)
	}
	return os.Chmod(path, mode) // mknod obeys the umask
}

// writeFile replaces a file unless it has the content already.
func writeFile(path, content string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// symlink replaces a link unless it has the target already.
func symlink(target, path string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.Symlink(target, path)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeExecutable(path, content string) error {
	if err := writeFile(path, content); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}
