package disk

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// firstMajor is where the search for free majors starts. Linux hands out no
// character major from 512 on (CHRDEV_MAJOR_MAX), so that no driver can ever
// take one of ours: opening such a node fails with ENXIO.
const firstMajor = 1195

// FreeMajors takes so many numbers for character devices that no driver of the
// host has.
func FreeMajors(procDevices string, count int) ([]int, error) {
	taken, err := takenMajors(procDevices)
	if err != nil {
		return nil, err
	}
	var free []int
	for next := firstMajor; len(free) < count; next++ {
		if !taken[next] {
			free = append(free, next)
		}
	}
	return free, nil
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

// DeviceNode is a character device to be made.
type DeviceNode struct {
	Path         string
	Mode         os.FileMode
	GID          int
	Major, Minor int
}

// Make makes the node, or an empty file where the process may not: plain tells.
// One that is right already stays, so that containers keep running with it.
func (n DeviceNode) Make() (plain bool, err error) {
	rdev := unix.Mkdev(uint32(n.Major), uint32(n.Minor))
	var st unix.Stat_t
	if err := unix.Lstat(n.Path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == rdev && (n.GID == 0 || int(st.Gid) == n.GID) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(n.Path), 0o755); err != nil {
		return false, err
	}
	if err := RemoveFile(n.Path); err != nil {
		return false, err
	}
	err = unix.Mknod(n.Path, unix.S_IFCHR|uint32(n.Mode.Perm()), int(rdev))
	if errors.Is(err, unix.EPERM) {
		return true, WriteFile(n.Path, "")
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("device node %s: %w", n.Path, err)
	}
	if n.GID != 0 {
		if err := os.Chown(n.Path, 0, n.GID); err != nil {
			return false, fmt.Errorf("group of device node: %w", err)
		}
	}
	return false, os.Chmod(n.Path, n.Mode) // mknod obeys the umask
}

// WriteFile replaces a file unless it has the content already.
func WriteFile(path, content string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// Symlink replaces a link unless it has the target already.
func Symlink(target, path string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.Symlink(target, path)
}

// RemoveFile removes a file that may not be there.
func RemoveFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// bootIDFile is where a machine says which boot this is, below its folder.
const bootIDFile = "proc/sys/kernel/random/boot_id"

// BootID is the boot id of the machine in a folder, whose simulated drivers all
// have the same. The first one to ask makes it.
func BootID(root string) (string, error) {
	lock := flock.New(filepath.Join(root, "boot.lock"))
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer lock.Close()
	data, err := os.ReadFile(filepath.Join(root, bootIDFile))
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := NewBootID()
	return id, SetBootID(root, id)
}

// SetBootID makes it another boot.
func SetBootID(root, id string) error {
	return WriteFile(filepath.Join(root, bootIDFile), id+"\n")
}

// NewBootID makes a random UUID, as the kernel does.
func NewBootID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails (crypto/rand)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
