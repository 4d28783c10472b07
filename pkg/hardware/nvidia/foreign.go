package nvidia

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// operatorRoot is where the GPU operator's driver container has its root file
// system: nvidia-smi is in there and not on the host.
const operatorRoot = "/run/nvidia/driver"

// RemovalCommand is what a person types on the node to remove a partition, for
// those that we leave alone because they are not ours. It is empty for what is
// no partition.
func (d *Driver) RemovalCommand(p gpu.Partition) string {
	id, ok := instanceID(p)
	if !ok {
		return ""
	}
	smi := "nvidia-smi"
	if d.cfg.HostDriverRoot == operatorRoot {
		smi = "chroot " + operatorRoot + " nvidia-smi"
	}
	// A half-made one may have no compute instance, which nvidia-smi calls a
	// failure.
	then := "&&"
	if !p.Complete {
		then = ";"
	}
	return fmt.Sprintf("%s mig -i %s -dci -gi %d %s %s mig -i %s -dgi -gi %d", smi, p.GPU, id, then, smi, p.GPU, id)
}

// instanceName names a GPU instance as nvidia-smi does.
func instanceName(id int) string { return fmt.Sprintf("GI %d", id) }

// instanceID reads the number out of "GI 3".
func instanceID(p gpu.Partition) (int, bool) {
	number, ok := strings.CutPrefix(p.ID, "GI ")
	if !ok || p.Type != gpu.TypeMIG {
		return 0, false
	}
	var id int
	if _, err := fmt.Sscanf(number, "%d", &id); err != nil {
		return 0, false
	}
	return id, true
}

// Idle tells whether nothing runs in a partition. One that is gone is idle. Where
// NVML does not say who uses the GPU, that is an error: what is not known to be
// idle must not be touched.
func (d *Driver) Idle(ctx context.Context, p gpu.Partition) (bool, error) {
	id, ok := instanceID(p)
	if !ok {
		return false, fmt.Errorf("%s (%s) is no MIG partition", p.Name(), p.ID)
	}
	return onGPU(ctx, d, p.GPU, func(c *gpuHandle) (bool, error) {
		processes, err := c.processes()
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(processes, func(p nvml.ProcessInfo) bool { return int(p.GpuInstanceId) == id }), nil
	})
}

// processes lists what runs on the GPU, in the order of the numbers.
func (c *gpuHandle) processes() ([]nvml.ProcessInfo, error) {
	all, err := ask(c.task, "DeviceGetComputeRunningProcesses", c.device.GetComputeRunningProcesses)
	if err != nil {
		return nil, err
	}
	drawing, err := ask(c.task, "DeviceGetGraphicsRunningProcesses", c.device.GetGraphicsRunningProcesses)
	if err != nil && !unsupported(err) {
		return nil, err
	}
	for _, p := range drawing {
		if !slices.ContainsFunc(all, func(q nvml.ProcessInfo) bool { return q.Pid == p.Pid && q.GpuInstanceId == p.GpuInstanceId }) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b nvml.ProcessInfo) int { return int(a.Pid) - int(b.Pid) })
	return all, nil
}
