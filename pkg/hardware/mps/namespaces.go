package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// controlProgram is NVIDIA's: both the daemon and its client.
const controlProgram = "nvidia-cuda-mps-control"

// nvidiaPrefix begins the names of the driver's programs.
const nvidiaPrefix = "nvidia-"

// programFolders are the places of programs below a driver root.
var programFolders = []string{"usr/bin", "bin", "usr/sbin", "sbin", "usr/local/bin", "opt/bin"}

// libraryFolders are the places of libraries below a driver root.
var libraryFolders = []string{
	"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
	"lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib", "lib",
}

// loaders are the programs that load dynamically linked ones. A folder with one of
// them is a whole system, in which programs run with libraries of its own.
var loaders = []string{"lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"}

// namespaces are what a process of the host has and one of a pod has not; mnt is
// the last, since it takes the others' files away. The PID namespace cannot be
// changed by a process for itself: the plugin's pod has the host's.
var namespaces = []string{"cgroup", "ipc", "uts", "net", "mnt"}

// joinHost makes this thread one of the host, in all namespaces. Nothing of the
// plugin's pod is then held by it.
func (l launch) joinHost() error {
	// A thread can change its mounts only when it shares no root with others.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the plugin's root folder: %w", err)
	}
	if l.hostRoot == "/" {
		return nil
	}
	return joinHost(l.hostRoot)
}

// leaveMounts puts this thread into a mount namespace of its own, that follows the one it
// had.
func leaveMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace for the MPS daemon: %w", err)
	}
	// What the host unmounts must not stay mounted here.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep the MPS daemon's mounts to itself: %w", err)
	}
	return nil
}

func joinHost(hostRoot string) error {
	if err := checkHostPID(hostRoot); err != nil {
		return err
	}
	var files []*os.File
	for _, name := range namespaces {
		file, err := os.Open("/proc/1/ns/" + name)
		if err != nil {
			return fmt.Errorf("find the host's %s namespace: %w", name, err)
		}
		defer file.Close()
		files = append(files, file)
	}
	for i, file := range files {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("join the host's %s namespace: %w", namespaces[i], err)
		}
	}
	return nil
}

// checkHostPID makes sure that process 1 is the host's: it has the root folder that
// the host has.
func checkHostPID(hostRoot string) error {
	first, err := os.Stat("/proc/1/root/")
	if err != nil {
		return fmt.Errorf("look at process 1: %w", err)
	}
	host, err := os.Stat(hostRoot)
	if err != nil {
		return fmt.Errorf("look at the host's root folder: %w", err)
	}
	if !os.SameFile(first, host) {
		return fmt.Errorf("process 1 is not the host's: its root folder is not %s; the plugin's pod needs hostPID: true", hostRoot)
	}
	return nil
}

// place is where NVIDIA's program runs.
type place struct {
	// root is where the driver's folders are, as the program sees them.
	root string
	// dir is the daemon's folder, as the program sees it.
	dir folder
}

// mountInDriver is where the daemon's folder is in a driver root of its own. Any
// folder that every system has would do; nobody else sees the mount.
const mountInDriver = "/mnt"

// enterDriver gives the daemon its /dev/shm, and goes to the driver root where that
// is a whole system.
func (l launch) enterDriver() (place, error) {
	root := "/"
	if isSystem(l.driverRoot) {
		root = l.driverRoot
	}
	p := place{root: l.driverRoot, dir: l.dir}
	if l.dir != "" {
		if err := bind(l.dir.shm(), filepath.Join(root, "dev/shm")); err != nil {
			return p, err
		}
	}
	if root == "/" {
		return p, nil
	}
	if l.dir != "" {
		if err := bind(string(l.dir), filepath.Join(root, mountInDriver)); err != nil {
			return p, err
		}
	}
	if err := unix.Chroot(root); err != nil {
		return p, fmt.Errorf("go to the driver root %s: %w", root, err)
	}
	return place{root: "/", dir: folder(mountInDriver)}, nil
}

func isSystem(root string) bool {
	for _, loader := range loaders {
		if _, err := os.Lstat(filepath.Join(root, loader)); err == nil {
			return true
		}
	}
	return false
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s for the MPS daemon: %w", from, to, err)
	}
	return nil
}

// find looks for a program of the driver: in its root, then on the host.
func (p place) find(program string) (string, error) {
	roots := []string{p.root}
	if p.root != "/" {
		roots = append(roots, "/")
	}
	var looked []string
	for _, root := range roots {
		for _, dir := range programFolders {
			path := filepath.Join(root, dir, program)
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
				return "", err
			}
			looked = append(looked, path)
		}
	}
	if !strings.HasPrefix(program, nvidiaPrefix) {
		return "", fmt.Errorf("%w: the host has no %s (looked for %s)", errNoProgram, program, strings.Join(looked, ", "))
	}
	return "", fmt.Errorf("%w: the NVIDIA driver has no %s (looked for %s): install the package that has it (Debian and Ubuntu: nvidia-compute-utils), or name the driver's folder with the driver root setting",
		errNoProgram, program, strings.Join(looked, ", "))
}

// environment is what the program needs to find others and its libraries: the
// daemon runs nvidia-cuda-mps-server.
func (p place) environment(program string) []string {
	env := []string{"PATH=" + filepath.Dir(program) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	if p.root == "/" {
		return env
	}
	var found []string
	for _, dir := range libraryFolders {
		path := filepath.Join(p.root, dir)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			found = append(found, path)
		}
	}
	if len(found) > 0 {
		env = append(env, "LD_LIBRARY_PATH="+strings.Join(found, ":"))
	}
	return env
}

// reopenStreams opens the daemon's output again: what the plugin opened lies on the
// mounts of its container.
func (p place) reopenStreams() error {
	log, err := os.OpenFile(p.dir.path(launchLog), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	for to, from := range []*os.File{null, log, log} {
		if err := unix.Dup3(int(from.Fd()), to, 0); err != nil {
			return fmt.Errorf("give the MPS daemon its output: %w", err)
		}
	}
	return nil
}
