package amd

import (
	"context"
	"fmt"
	"path"
	"time"
)

const (
	moduleDir = "/sys/module/amdgpu"
	bootID    = "/proc/sys/kernel/random/boot_id"
	// loadPatience is how long the three short looks of LoadID may take.
	loadPatience = 3 * time.Second
)

// LoadID identifies this load of the driver: it changes with every boot and
// with every unloading and loading of the kernel module, and with nothing else.
// The compute mode does not outlive it, and the numbers of KFD's nodes and of
// render nodes may be others afterwards.
//
// It is the boot id, the inode number of /sys/module/amdgpu, which the kernel
// makes anew with the module and does not use again within a boot, and the
// module's version, or the checksum of its source where it has none: the module
// that comes with the kernel has no version. Without the module it fails with
// fs.ErrNotExist.
func (d *Driver) LoadID() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadPatience)
	defer cancel()
	return d.loadIDWithin(ctx)
}

func (d *Driver) loadIDWithin(ctx context.Context) (string, error) {
	return through(ctx, d.module, d.cfg.Files, (*task).loadID)
}

func (t *task) loadID() (string, error) {
	id, err := t.readLoadID()
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: is amdgpu loaded? %w", err)
	}
	return id, nil
}

func (t *task) readLoadID() (string, error) {
	boot, err := t.read(bootID)
	if err != nil {
		return "", err
	}
	info, err := t.stat(moduleDir)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("%s/%d", boot, info.Inode)
	for _, name := range []string{"version", "srcversion"} {
		text, err := t.optional(path.Join(moduleDir, name))
		if err != nil {
			return "", err
		}
		if text != "" {
			return id + "/" + text, nil
		}
	}
	return id, nil
}
