package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LoadID identifies this load of the driver: it changes with every boot and
// with every unloading and loading of the kernel module, and with nothing else.
// Partitions, and most of what was wrong with a GPU, do not outlive it.
//
// It is the boot id, the inode number of /sys/module/nvidia, which the kernel
// makes anew with the module and does not use again within a boot, and the
// module's version. (The times of a file in sysfs say when it was last looked
// at, so they are no part of it.) Without the module it fails with
// fs.ErrNotExist.
func (d *Driver) LoadID() (string, error) { return LoadID(d.cfg.ProcRoot, d.cfg.SysRoot) }

// LoadID is Driver.LoadID where there is no library to make a Driver of. procRoot is
// the folder that has proc in it, sysRoot is sysfs.
func LoadID(procRoot, sysRoot string) (string, error) {
	boot, err := os.ReadFile(filepath.Join(procRoot, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: %w", err)
	}
	module := filepath.Join(sysRoot, "module/nvidia")
	info, err := os.Stat(module)
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: is the driver loaded? %w", err)
	}
	id := strings.TrimSpace(string(boot))
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id += fmt.Sprintf("/%d", stat.Ino)
	}
	version, err := os.ReadFile(filepath.Join(module, "version"))
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: %w", err)
	}
	return id + "/" + strings.TrimSpace(string(version)), nil
}
