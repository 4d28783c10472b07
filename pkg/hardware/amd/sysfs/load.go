package sysfs

import (
	"context"
	"fmt"
	"path"
	"time"
)

const (
	// loadPatience is how long the three short looks of LoadID may take.
	loadPatience = 3 * time.Second
)

// LoadID identifies this load of the driver: it changes with every boot and
// with every unloading and loading of the kernel module, and with nothing else.
// The compute mode does not outlive it, and the numbers of KFD's nodes and of
// render nodes may be others afterwards.
//
// It is the boot id, the inode number of /sys/module/amdgpu, which is new with each load and not
// used again within a boot, and the module's version, or the checksum of its source if it has
// none, like the module that comes with the kernel. Without the module it fails with
// fs.ErrNotExist.
func (m *Machine) LoadID() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadPatience)
	defer cancel()
	return m.LoadIDWithin(ctx)
}

// LoadIDWithin is LoadID with a deadline of the caller's.
func (m *Machine) LoadIDWithin(ctx context.Context) (string, error) {
	return through(ctx, m, m.module, LoadID)
}

// LoadID is Machine.LoadID within a task.
func LoadID(t *Task) (string, error) {
	id, err := readLoadID(t)
	if err != nil {
		return "", fmt.Errorf("identity of the driver load: is amdgpu loaded? %w", err)
	}
	return id, nil
}

func readLoadID(t *Task) (string, error) {
	boot, err := t.Read(BootID)
	if err != nil {
		return "", err
	}
	info, err := t.Stat(ModuleDir)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("%s/%d", boot, info.Inode)
	for _, name := range []string{"version", "srcversion"} {
		text, err := t.ReadOptional(path.Join(ModuleDir, name))
		if err != nil {
			return "", err
		}
		if text != "" {
			return id + "/" + text, nil
		}
	}
	return id, nil
}
