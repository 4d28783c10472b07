package instance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// wholeGPUClients asks for the clients of all of a GPU, whatever GPU instance
// they use.
const wholeGPUClients = -1

// Clients lists the processes that use the GPU.
func (c *GPU) Clients() ([]int, error) { return c.clients(c.Device, wholeGPUClients) }

// refuseClients fails with gpu.ErrInUse when a process uses the GPU. NVML
// refuses too, but it does not say who is in the way, and a refused switch
// leaves a pending mode behind.
func (c *GPU) refuseClients(what string) error {
	pids, err := c.clients(c.Device, wholeGPUClients)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return nil
	}
	return fmt.Errorf("GPU %s: cannot %s: %w by %s", c.PCIAddress, what, gpu.ErrInUse, PIDList(pids))
}

// explainClients adds the processes to an error that says that something is in
// use. instance is the id of the GPU instance, or wholeGPUClients.
func (c *GPU) explainClients(err error, instance int) error {
	if !errors.Is(err, gpu.ErrInUse) {
		return err
	}
	pids, listErr := c.clients(c.Device, instance)
	if listErr != nil || len(pids) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, PIDList(pids))
}

// clients lists the processes that use a GPU or one of its GPU instances, by
// the number that the host knows them by.
func (c *GPU) clients(device nvml.Device, instance int) ([]int, error) {
	var pids []int
	for _, list := range []struct {
		call string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"DeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses},
		{"DeviceGetGraphicsRunningProcesses", device.GetGraphicsRunningProcesses},
	} {
		processes, err := session.Ask(c.Task, list.call, list.get)
		if session.Unsupported(err) || errors.Is(err, nvml.ERROR_NO_PERMISSION) {
			continue // NVML does not tell: the switch itself will
		}
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			if instance == wholeGPUClients || int(p.GpuInstanceId) == instance {
				pids = append(pids, int(p.Pid))
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// PIDList names processes, for errors.
func PIDList(pids []int) string {
	texts := make([]string, len(pids))
	for i, pid := range pids {
		texts[i] = fmt.Sprint(pid)
	}
	if len(texts) == 1 {
		return "process " + texts[0]
	}
	return "processes " + strings.Join(texts, ", ")
}
