package nvdriver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// start opens the machine's state, making it at the first start, and brings
// its files up to date. Other GPUs than before mean that the machine was
// switched off, another driver version that the driver was reloaded.
func (n *NVML) start() error {
	if err := os.MkdirAll(n.root, 0o755); err != nil {
		return err
	}
	ours := n.store.Existed()
	return n.store.Update(func(st *nvstate.State) (*nvstate.State, error) {
		next, err := n.startedFrom(st, ours)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return nil, n.files.Write(st)
		}
		return next, n.files.Write(next)
	})
}

// startedFrom is the state after the start, nil when the machine goes on.
func (n *NVML) startedFrom(st *nvstate.State, ours bool) (*nvstate.State, error) {
	switch {
	case st == nil || !n.sameGPUs(st):
		if ours {
			if err := nvfiles.Remove(n.root); err != nil {
				return nil, err
			}
		}
		return n.firstState(st)
	case st.DriverVersion != n.inventory.DriverVersion:
		loadDriver(st)
		st.DriverVersion = n.inventory.DriverVersion
		return st, n.removeDriver(st)
	}
	return nil, nil
}

// removeDriver takes away what a driver of another version installed.
func (n *NVML) removeDriver(st *nvstate.State) error {
	if err := n.files.RemoveDriver(); err != nil || st.Unloaded {
		return err
	}
	return n.files.WriteModule(true)
}

func (n *NVML) sameGPUs(st *nvstate.State) bool {
	return slices.EqualFunc(n.inventory.GPUs, st.GPUs, func(g models.GPU, s nvstate.GPU) bool {
		return g.PCI == s.PCI && g.Model.Key == s.Model
	})
}

// firstState is a machine as the inventory has it; serials go on counting.
func (n *NVML) firstState(old *nvstate.State) (*nvstate.State, error) {
	st := &nvstate.State{Version: nvstate.Version, DriverVersion: n.inventory.DriverVersion, Loaded: time.Now()}
	var err error
	if st.BootID, err = disk.BootID(n.root); err != nil {
		return nil, err
	}
	if st.Majors, err = nvfiles.ChooseMajors("/proc/devices"); err != nil {
		return nil, err
	}
	if old != nil {
		st.Serial = old.Serial
	}
	for _, g := range n.inventory.GPUs {
		st.GPUs = append(st.GPUs, nvstate.GPU{
			Model: g.Model.Key, PCI: g.PCI, MIGMode: g.MIGMode, PendingMIGMode: g.MIGMode,
			Started: time.Now().Add(-firstUptime),
		})
	}
	return st, nil
}

// firstUptime is how long the machine has been running when it is first seen.
const firstUptime = time.Hour

// loadDriver is what unloading and loading the driver does to the GPUs:
// instances are gone; MIG mode holds where the GPU stores it (Ampere) and is
// off elsewhere.
func loadDriver(st *nvstate.State) {
	st.Loaded = time.Now()
	st.Processes = nil
	for i := range st.GPUs {
		loadGPU(&st.GPUs[i])
	}
}

func loadGPU(g *nvstate.GPU) {
	g.Instances, g.ComputeMode, g.MemoryLimits, g.Started = nil, 0, nil, time.Now()
	m, ok := models.NVIDIAModelByKey(g.Model)
	g.MIGMode = ok && m.KeepsMIGMode() && g.PendingMIGMode
	g.PendingMIGMode = g.MIGMode
}

// Reboot restarts the simulated machine: instances and processes are gone,
// also those of faults.yaml, pending MIG modes of Ampere GPUs hold, the mode
// is off on later ones, and the boot id is new. AMD GPUs of the machine, if it
// has any, are rebooted with it (amdgpu.Reboot). Libraries open on the root see
// it at their next call, with stale handles.
func Reboot(root string) error {
	bootID := disk.NewBootID()
	if amdgpu.Exists(root) {
		if err := amdgpu.RebootAs(root, bootID); err != nil {
			return err
		}
		if st, err := nvstate.Store(root).Read(); err != nil || st == nil {
			return err // nothing is left to do without GPUs of NVIDIA's
		}
	}
	if err := endFaultProcesses(root); err != nil {
		return err
	}
	return restart(root, func(st *nvstate.State) { st.BootID = bootID })
}

// ReloadDriver unloads and loads NVIDIA's driver: as Reboot, with the same boot
// id, and AMD GPUs stay as they are.
func ReloadDriver(root string) error {
	if err := endFaultProcesses(root); err != nil {
		return err
	}
	return restart(root, func(*nvstate.State) {})
}

// ResetGPU resets one GPU, as nvidia-smi --gpu-reset does: its instances are gone,
// a pending MIG mode holds and what recovery asked for is done. It is refused while
// the GPU has clients; what faults.yaml says of resets, and open sessions of NVML,
// are for nvidia-smi alone.
func ResetGPU(root, pci string) error {
	faults, err := currentFaults(root)
	if err != nil {
		return err
	}
	return changeMachine(root, false, func(st *nvstate.State) error {
		g, ok := st.GPU(pci)
		if !ok {
			return fmt.Errorf("reset: no GPU at %s", pci)
		}
		for _, p := range slices.Concat(st.Processes, faults.Processes) {
			if p.GPU == pci {
				return fmt.Errorf("reset: GPU %s is in use by process %d; end it first", pci, p.PID)
			}
		}
		g.Reset()
		return recovered(root, pci)
	})
}

func restart(root string, also func(*nvstate.State)) error {
	if err := recovered(root, ""); err != nil {
		return err
	}
	if err := nvtools.ResetTimeSlices(root); err != nil {
		return err
	}
	return changeMachine(root, true, func(st *nvstate.State) error {
		loadDriver(st)
		st.Unloaded = false
		also(st)
		return nil
	})
}

// changeMachine changes the state from outside NVML and makes the files follow.
func changeMachine(root string, reload bool, change func(*nvstate.State) error) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	return nvstate.Store(root).Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(root)
		}
		if err := change(st); err != nil {
			return nil, err
		}
		files := filesOf(root, st)
		if err := files.SyncCapabilities(st); err != nil {
			return nil, err
		}
		if reload {
			if err := files.WriteModule(true); err != nil {
				return nil, err
			}
		}
		return st, disk.SetBootID(root, st.BootID)
	})
}

// filesOf has the GPUs of a state.
func filesOf(root string, st *nvstate.State) *nvfiles.Layout {
	l := &nvfiles.Layout{Root: root, DriverVersion: st.DriverVersion}
	for _, g := range st.GPUs {
		m, ok := models.NVIDIAModelByKey(g.Model)
		if !ok { // an inventory describes it, so it has no MIG
			m = &models.NVIDIAModel{Key: g.Model}
		}
		l.GPUs = append(l.GPUs, models.GPU{Model: m, PCI: g.PCI})
	}
	return l
}

func currentFaults(root string) (*Faults, error) {
	return disk.ReadFaults(faultsPath(root), ParseFaults)
}

// endFaultProcesses takes the processes out of faults.yaml: none survives a
// restart of the driver.
func endFaultProcesses(root string) error {
	return changeFaults(root, func(f *Faults) bool {
		had := len(f.Processes) > 0
		f.Processes = nil
		return had
	})
}
