package nvstate

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/load"
)

// Version is raised when an older state cannot be read any more.
const Version = 1

// State is what the driver and the GPUs remember.
type State struct {
	Version int `json:"version"`
	// DriverVersion and the GPUs' models and addresses tell whether the
	// state belongs to the inventory at hand.
	DriverVersion string `json:"driverVersion"`
	BootID        string `json:"bootID"`
	// Loaded is when the driver was loaded.
	Loaded time.Time `json:"loaded"`
	// Unloaded says that the driver's module is not in the kernel.
	Unloaded bool   `json:"unloaded,omitempty"`
	Majors   Majors `json:"majors"`
	// Serial numbers instances, so that a handle of a destroyed instance is
	// told from its successor with the same ids.
	Serial    uint64    `json:"serial"`
	GPUs      []GPU     `json:"gpus"`
	Processes []Process `json:"processes,omitempty"`
	// FaultsFile is which faults.yaml the counts belong to.
	FaultsFile disk.FileID `json:"faultsFile"`
	// FiredFaults is how often faults have fired, by key and index ("calls/0").
	FiredFaults map[string]int `json:"firedFaults,omitempty"`
}

// Majors are the character device numbers of the simulated driver.
type Majors struct {
	Frontend int `json:"frontend"` // nvidiaN, nvidiactl, nvidia-modeset
	UVM      int `json:"uvm"`
	Caps     int `json:"caps"`
}

// Process is a client of a GPU or of one of its instances.
type Process struct {
	// GPU is a PCI address.
	GPU string `json:"gpu"`
	// GPUInstance is the id of a GPU instance, absent for the whole GPU.
	GPUInstance *int   `json:"gpuInstance,omitempty"`
	PID         int    `json:"pid"`
	Name        string `json:"name,omitempty"`
	// Unlisted: the process keeps the GPU in use, but NVML does not list it, as programs
	// without a context (DCGM, nvidia-persistenced, nvidia-smi).
	Unlisted bool `json:"unlisted,omitempty"`
	// MPS: it is a client of MPS.
	MPS bool `json:"mps,omitempty"`
	// Group is the folder of its control group; empty: what it has counts for none.
	Group string `json:"group,omitempty"`

	load.Use
}

// GPU is a GPU.
type GPU struct {
	Model          string `json:"model"`
	PCI            string `json:"pci"`
	MIGMode        bool   `json:"migMode"`
	PendingMIGMode bool   `json:"pendingMigMode"`
	ComputeMode    int    `json:"computeMode,omitempty"`
	// Started is when the driver last brought the GPU up.
	Started   time.Time     `json:"started,omitzero"`
	Instances []GPUInstance `json:"instances,omitempty"`
	// MemoryLimits are by the folder of the control group.
	MemoryLimits map[string]MemoryLimit `json:"memoryLimits,omitempty"`
}

// MemoryLimit is what the processes of a control group may have of a GPU's memory, in bytes.
type MemoryLimit struct {
	// Inode is that of the group's folder.
	Inode uint64 `json:"inode"`
	Soft  uint64 `json:"soft"`
	Hard  uint64 `json:"hard"`
}

// GPUInstance is a partition of a GPU.
type GPUInstance struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // the number that the GPU knows it by
	Start   int    `json:"start"`
	Serial  uint64 `json:"serial"`

	Compute []ComputeInstance `json:"compute,omitempty"`
}

// ComputeInstance is a partition of a GPU instance.
type ComputeInstance struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // NVML_COMPUTE_INSTANCE_PROFILE_*
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	Serial  uint64 `json:"serial"`
	// MIGIndex is the index of the MIG device on its GPU.
	MIGIndex int `json:"migIndex"`
}

// Store is the state of the machine in a folder.
func Store(root string) *disk.Store[State] {
	return &disk.Store[State]{
		Path: filepath.Join(root, "state.json"),
		Lock: filepath.Join(root, "state.lock"),
		Check: func(st *State) error {
			if st.Version != Version {
				return fmt.Errorf("version %d, this program reads %d", st.Version, Version)
			}
			return nil
		},
		Clone: (*State).clone,
	}
}

// clone makes a copy that can be changed.
func (st *State) clone() *State {
	c := *st
	c.GPUs = slices.Clone(st.GPUs)
	for i := range c.GPUs {
		instances := slices.Clone(c.GPUs[i].Instances)
		for j := range instances {
			instances[j].Compute = slices.Clone(instances[j].Compute)
		}
		c.GPUs[i].Instances, c.GPUs[i].MemoryLimits = instances, maps.Clone(c.GPUs[i].MemoryLimits)
	}
	c.Processes = slices.Clone(st.Processes)
	c.FiredFaults = maps.Clone(st.FiredFaults)
	return &c
}

// NextSerial numbers a new instance.
func (st *State) NextSerial() uint64 {
	st.Serial++
	return st.Serial
}

// GPU finds a GPU by its address.
func (st *State) GPU(pci string) (*GPU, bool) {
	for i := range st.GPUs {
		if st.GPUs[i].PCI == pci {
			return &st.GPUs[i], true
		}
	}
	return nil, false
}

// FireFault uses up one of a fault's times and says whether there was one left.
// key is the fault's key in faults.yaml, file that file as it is: with every new
// one the count starts again.
func (st *State) FireFault(key string, index, times int, file disk.FileID) bool {
	if st.FaultsFile != file {
		st.FaultsFile, st.FiredFaults = file, nil
	}
	key = fmt.Sprintf("%s/%d", key, index)
	if st.FiredFaults[key] >= times {
		return false
	}
	if st.FiredFaults == nil {
		st.FiredFaults = map[string]int{}
	}
	st.FiredFaults[key]++
	return true
}

// Instance finds a GPU instance by its id.
func (g *GPU) Instance(id int) (*GPUInstance, bool) {
	for i := range g.Instances {
		if g.Instances[i].ID == id {
			return &g.Instances[i], true
		}
	}
	return nil, false
}

// ComputeInstance finds a compute instance by its id.
func (i *GPUInstance) ComputeInstance(id int) (*ComputeInstance, bool) {
	for j := range i.Compute {
		if i.Compute[j].ID == id {
			return &i.Compute[j], true
		}
	}
	return nil, false
}

// ErrNone says that there is no machine in a folder.
func ErrNone(root string) error {
	return fmt.Errorf("no simulated machine in %s: New creates it", root)
}
