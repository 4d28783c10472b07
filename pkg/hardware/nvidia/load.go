package nvidia

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LoadID implements hardware.Driver. Partitions and most errors of a GPU do not outlive a
// load of the driver.
//
// The id consists of the boot id, the inode number of /sys/module/nvidia, which is new for
// each load and never used again within a boot, and the version of the module. (Times of
// files in sysfs are not part of it: they say when the file was last looked at.)
//
// Without that folder it is the boot id and /proc/driver/nvidia/version: a driver that is built
// into the kernel, or a stand-in for NVML, which provides that file for it.
func (d *Driver) LoadID() (string, error) { return LoadID(d.cfg.ProcRoot, d.cfg.SysRoot) }

// LoadID is Driver.LoadID without a driver's library. procRoot is the folder that contains
// proc, sysRoot is sysfs. Without a driver it fails with fs.ErrNotExist.
func LoadID(procRoot, sysRoot string) (string, error) {
	boot, err := os.ReadFile(filepath.Join(procRoot, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: %w", err)
	}
	id := strings.TrimSpace(string(boot))
	module := filepath.Join(sysRoot, "module/nvidia")
	info, err := os.Stat(module)
	if errors.Is(err, fs.ErrNotExist) {
		// A driver that is no module is loaded once in a boot.
		version, told := os.ReadFile(filepath.Join(procRoot, "proc/driver/nvidia/version"))
		_, err = os.Stat(module) // a module that was loaded between the two
		if told == nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s/no module/%x", id, sha256.Sum256(version)), nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: is the driver loaded? %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id += fmt.Sprintf("/%d", stat.Ino)
	}
	version, err := os.ReadFile(filepath.Join(module, "version"))
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: %w", err)
	}
	return id + "/" + strings.TrimSpace(string(version)), nil
}
