package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// wholeGPUClients stands for the clients of the GPU and of all its GPU instances.
const wholeGPUClients = -1

// Clients lists the processes that use the GPU, by their ids on the host.
func (g *GPU) Clients() ([]int, error) { return g.clients(g.Device, wholeGPUClients) }

// refuseClients fails with gpu.ErrInUse if a process uses the GPU. NVML fails too, but it
// does not name the process, and it leaves a pending mode behind.
func (g *GPU) refuseClients(what string) error {
	pids, err := g.clients(g.Device, wholeGPUClients)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return nil
	}
	return &gpu.ProcessesError{Err: fmt.Errorf("GPU %s: cannot %s: %w by %s", g.PCIAddress, what, gpu.ErrInUse, PIDList(pids))}
}

// explainClients adds the processes to a gpu.ErrInUse, which becomes a gpu.ProcessesError. instance
// is the id of the GPU instance, or wholeGPUClients.
func (g *GPU) explainClients(err error, instance int) error {
	if !errors.Is(err, gpu.ErrInUse) {
		return err
	}
	pids, listErr := g.clients(g.Device, instance)
	if listErr != nil || len(pids) == 0 {
		return err
	}
	return &gpu.ProcessesError{Err: fmt.Errorf("%w: %s", err, PIDList(pids))}
}

// clients lists the processes that use a GPU instance, or all with wholeGPUClients.
func (g *GPU) clients(device nvml.Device, instance int) ([]int, error) {
	var pids []int
	for _, list := range []struct {
		call string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"DeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses},
		{"DeviceGetGraphicsRunningProcesses", device.GetGraphicsRunningProcesses},
	} {
		processes, err := Ask(g.Task, list.call, list.get)
		if Unsupported(err) || errors.Is(err, nvml.ERROR_NO_PERMISSION) {
			continue // if a process uses the GPU, the call that follows fails
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
	texts := lists.Map(pids, func(pid int) string { return fmt.Sprint(pid) })
	if len(texts) == 1 {
		return "process " + texts[0]
	}
	return "processes " + strings.Join(texts, ", ")
}
