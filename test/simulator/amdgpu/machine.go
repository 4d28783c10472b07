package amdgpu

import (
	"os"
	"slices"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Exists reports whether there are simulated AMD GPUs at a root.
func Exists(root string) bool {
	_, err := os.Stat(newStore(root).Path)
	return err == nil
}

// Reboot restarts a simulated machine that has AMD GPUs only: the modes are
// those of its start, requests for memory modes are lost, processes are gone,
// also those of faults.yaml, as are resets and counted errors, and the boot id is
// new. A machine with GPUs of NVIDIA's too is rebooted by test/simulator/nvdriver.
func Reboot(root string) error { return RebootAs(root, disk.NewBootID()) }

// RebootAs is Reboot of a machine whose boot id is given.
func RebootAs(root, bootID string) error {
	err := restart(root, func(st *state, _ *Faults) { st.reboot(bootID) })
	if err != nil {
		return err
	}
	return disk.SetBootID(root, bootID)
}

// ReloadDriver unloads and loads amdgpu: memory modes that were asked for are in,
// unless a fault loses them, each GPU is in the compute mode that the driver
// chooses, and processes are gone.
//
// It is done at once, and nothing is in its way: Kernel.Modprobe is the way that
// meets processes and the faults of "driver".
func ReloadDriver(root string) error {
	return restart(root, func(st *state, f *Faults) { st.reloadWith(f, DriverFault{}) })
}

// reloadWith loads the driver, as far as the faults let it.
func (st *state) reloadWith(f *Faults, fault DriverFault) {
	for i := range st.GPUs {
		c := &st.GPUs[i]
		c.Now = f.modes(*c)
		if f.MemoryModeLost || about(fault.MemoryModeLost, c.PCI) {
			c.Requested = ""
		}
	}
	st.reload()
	for i := range st.GPUs {
		st.GPUs[i].Absent = about(fault.Missing, st.GPUs[i].PCI)
	}
}

// restart changes the state, and removes from faults.yaml what does not survive a restart.
func restart(root string, change func(*state, *Faults)) error {
	err := newStore(root).Update(func(st *state) (*state, error) {
		if st == nil {
			return nil, errNoState(root)
		}
		faults, err := currentFaults(root)
		if err != nil {
			return nil, err
		}
		change(st, faults)
		return st, nil
	})
	if err != nil {
		return err
	}
	return changeFaults(root, func(f *Faults) {
		f.Processes, f.Resetting, f.RAS, f.MemoryModes = nil, nil, nil, nil
	})
}

func (st *state) reboot(bootID string) {
	st.BootID, st.Processes = bootID, nil
	for i := range st.GPUs {
		st.GPUs[i].Now = st.GPUs[i].AtStart
	}
	st.load()
}

// reload reloads the driver.
func (st *state) reload() {
	st.Processes = nil
	for i := range st.GPUs {
		c := &st.GPUs[i]
		if c.Requested != "" {
			c.Now.Memory = c.Requested
		}
		if m, ok := models.AMDModelByKey(c.Model); ok && m.HasPartitions() && !c.VF {
			c.Now.Compute = m.AutoMode(c.Now.Memory)
		}
	}
	st.load()
}

// modes are those of a GPU that a fault may have put into another memory mode.
func (f *Faults) modes(c gpuState) modes {
	now := c.Now
	m, ok := models.AMDModelByKey(c.Model)
	if !ok || !m.HasPartitions() {
		return now
	}
	for _, x := range f.MemoryModes {
		if (x.GPU == "*" || x.GPU == c.PCI) && slices.Contains(m.MemoryModes, x.Mode) && x.Mode != now.Memory {
			now.Memory = x.Mode
			if !slices.Contains(xcp.Legal(m.Chip(false), x.Mode), now.Compute) {
				now.Compute = m.AutoMode(x.Mode)
			}
		}
	}
	return now
}
