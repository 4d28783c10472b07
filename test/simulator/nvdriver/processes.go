package nvdriver

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// Process is a client of a GPU or of one of its instances.
type Process = nvstate.Process

func checkProcess(p Process) error {
	switch {
	case !models.IsPCIAddress(p.GPU):
		return fmt.Errorf("gpu: %q is not an address like 0000:1b:00.0", p.GPU)
	case p.GPUInstance != nil && *p.GPUInstance < 0:
		return fmt.Errorf("gpuInstance: %d is negative", *p.GPUInstance)
	case p.PID < 1:
		return fmt.Errorf("pid: %d is not a process id", p.PID)
	}
	return p.Check()
}

// AddProcess makes a process a client of a GPU until RemoveProcess or Reboot.
func AddProcess(root string, p Process) error {
	if err := checkProcess(p); err != nil {
		return err
	}
	return nvstate.Store(root).Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(root)
		}
		if _, ok := st.GPU(p.GPU); !ok {
			return nil, fmt.Errorf("gpu: no GPU at %s", p.GPU)
		}
		st.Processes = append(st.Processes, p)
		return st, nil
	})
}

// RemoveProcess ends a process that AddProcess started.
func RemoveProcess(root string, pid int) error {
	return nvstate.Store(root).Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(root)
		}
		st.Processes = slices.DeleteFunc(st.Processes, func(p Process) bool { return p.PID == pid })
		return st, nil
	})
}

// GetComputeRunningProcesses lists the GPU's clients, those of its instances
// included.
func (d *device) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.listed("GetComputeRunningProcesses", func(p Process) bool { return !p.Unlisted })
}

// GetMPSComputeRunningProcesses lists the clients of MPS, which are in the other list, too (read on an
// H100, realdriver.md).
func (d *device) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.listed("GetMPSComputeRunningProcesses", func(p Process) bool { return !p.Unlisted && p.MPS })
}

// listed lists some of the GPU's clients.
func (d *device) listed(call string, isListed func(Process) bool) ([]nvml.ProcessInfo, nvml.Return) {
	if ret := d.check(call); ret != nvml.SUCCESS {
		return nil, ret
	}
	processes, err := d.processes()
	if err != nil {
		return nil, d.nv.unexpected(call, err)
	}
	infos := make([]nvml.ProcessInfo, 0, len(processes))
	for _, p := range processes {
		if isListed(p) {
			infos = append(infos, processInfo(p))
		}
	}
	return infos, nvml.SUCCESS
}

// GetGraphicsRunningProcesses: simulated clients only compute.
func (d *device) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, d.check("GetGraphicsRunningProcesses")
}

// SystemGetProcessName returns the command of a process, or the name of a client that is none:
// NOT_FOUND "if process doesn't exist" (nvml.h).
func (n *NVML) SystemGetProcessName(pid int) (string, nvml.Return) {
	if ret := n.initialized(); ret != nvml.SUCCESS {
		return "", ret
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
		command, _, _ := strings.Cut(string(line), "\x00")
		return command, nvml.SUCCESS
	}
	for _, d := range n.devices {
		all, err := d.processes()
		if err != nil {
			return "", n.unexpected("SystemGetProcessName", err)
		}
		for _, p := range all {
			if p.PID == pid {
				return p.Name, nvml.SUCCESS
			}
		}
	}
	return "", nvml.ERROR_NOT_FOUND
}

// processes lists the clients of the GPU that the state and the faults name.
func (d *device) processes() ([]Process, error) {
	st, err := d.nv.store.Read()
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, nvstate.ErrNone(d.nv.root)
	}
	return d.clients(st), nil
}

func (d *device) clients(st *nvstate.State) []Process {
	faults, _ := d.nv.faults.Read()
	var mine []Process
	for _, p := range slices.Concat(st.Processes, faults.Processes) {
		if p.GPU == d.gpu().PCI {
			mine = append(mine, p)
		}
	}
	return mine
}

// clientsOf lists the clients of one GPU instance.
func (d *device) clientsOf(st *nvstate.State, instance int) []Process {
	return slices.DeleteFunc(d.clients(st), func(p Process) bool {
		return p.GPUInstance == nil || *p.GPUInstance != instance
	})
}

// noInstance stands where an id has no instance to name (nvml.h: "set to
// 0xFFFFFFFF otherwise").
const noInstance = 0xFFFFFFFF

func processInfo(p Process) nvml.ProcessInfo {
	info := nvml.ProcessInfo{Pid: uint32(p.PID), UsedGpuMemory: p.Memory(), GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
	if p.GPUInstance != nil {
		info.GpuInstanceId, info.ComputeInstanceId = uint32(*p.GPUInstance), 0
	}
	return info
}
