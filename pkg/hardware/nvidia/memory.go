package nvidia

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// wholeMemory is usableMemory with MIG off, which is how the whole GPU is used. The
// driver reserves another amount while MIG is on; what is published must not follow
// it, or every switch would rewrite the slices and change the size of shares. After a
// start with MIG on, the amount of then counts until MIG is off for the first time.
func (c *gpuHandle) wholeMemory(migOn bool) (int64, error) {
	version, err := session.Ask(c.Task, "SystemGetDriverVersion", c.NVML.SystemGetDriverVersion)
	if err != nil {
		return 0, err
	}
	uuid, err := c.UUID()
	if err != nil {
		return 0, err
	}
	key := uuid + " " + version
	if known, ok := c.driver.memoryOf(key); ok && migOn {
		return known, nil
	}
	memory, err := c.usableMemory()
	if err != nil {
		return 0, err
	}
	c.driver.rememberMemory(key, memory)
	return memory, nil
}

func (d *Driver) memoryOf(key string) (int64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	memory, ok := d.memory[key]
	return memory, ok
}

func (d *Driver) rememberMemory(key string, memory int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory[key] = memory
}

// usableMemory is what a process on the whole GPU can use, in bytes: the total
// less what the driver keeps for itself, where the driver says how much that is.
func (c *gpuHandle) usableMemory() (int64, error) {
	v2, err := session.Ask(c.Task, "DeviceGetMemoryInfo_v2", func() (nvml.Memory_v2, nvml.Return) { return c.Device.GetMemoryInfo_v2() })
	if err == nil && v2.Reserved < v2.Total {
		return int64(v2.Total - v2.Reserved), nil
	}
	if err != nil && !session.Unsupported(err) && !errors.Is(err, nvml.ERROR_ARGUMENT_VERSION_MISMATCH) {
		return 0, err
	}
	total, err := c.TotalMemory()
	return int64(total), err
}
