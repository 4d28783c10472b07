package nvidia

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// wholeMemory returns usableMemory as it is with MIG off, because whole GPUs are used so. The
// driver reserves another amount while MIG is on. If that were published, every switch would
// rewrite the slices and change the size of shares. If MIG is on when the plugin starts, the
// amount read then counts until MIG is off for the first time.
func (h *handle) wholeMemory(migOn bool) (int64, error) {
	version, err := session.Ask(h.Task, "SystemGetDriverVersion", h.NVML.SystemGetDriverVersion)
	if err != nil {
		return 0, err
	}
	uuid, err := h.UUID()
	if err != nil {
		return 0, err
	}
	key := uuid + " " + version
	if known, ok := h.driver.memoryOf(key); ok && migOn {
		return known, nil
	}
	memory, err := h.usableMemory()
	if err != nil {
		return 0, err
	}
	h.driver.rememberMemory(key, memory)
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

// usableMemory returns what a process on the whole GPU can use, in bytes: the total less
// what the driver reserves, if it reports that. Zero if the GPU does not report its memory.
func (h *handle) usableMemory() (int64, error) {
	v2, err := session.Ask(h.Task, "DeviceGetMemoryInfo_v2", func() (nvml.Memory_v2, nvml.Return) { return h.Device.GetMemoryInfo_v2() })
	if err == nil && v2.Reserved < v2.Total {
		return int64(v2.Total - v2.Reserved), nil
	}
	if err != nil && !session.OldStructure(err) {
		return 0, err
	}
	total, err := h.TotalMemory()
	return int64(total), err
}
