package simulate

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/tranche-dev/tranche/pkg/hardware/simulate/disk"
)

// stateVersion is raised when an older state cannot be read any more.
const stateVersion = 1

// state is what the driver and the cards remember between calls. It is kept
// in one file that every process of the machine reads.
type state struct {
	Version int `json:"version"`
	// DriverVersion and the cards' models and addresses tell whether the
	// state belongs to the inventory at hand.
	DriverVersion string `json:"driverVersion"`
	BootID        string `json:"bootID"`
	// Loaded is when the driver was loaded.
	Loaded time.Time `json:"loaded"`
	Majors majors    `json:"majors"`
	// Serial numbers instances, so that a handle of a destroyed instance is
	// told from its successor with the same ids.
	Serial    uint64     `json:"serial"`
	GPUs      []gpuState `json:"gpus"`
	Processes []Process  `json:"processes,omitempty"`
	// FaultsFile is which faults.yaml the counts belong to.
	FaultsFile  disk.FileID `json:"faultsFile"`
	FaultCounts []int       `json:"faultCounts,omitempty"`
}

type gpuState struct {
	Model          string `json:"model"`
	PCI            string `json:"pci"`
	MIGMode        bool   `json:"migMode"`
	PendingMIGMode bool   `json:"pendingMigMode"`
	ComputeMode    int    `json:"computeMode,omitempty"`
	// Started is when the driver last brought the card up.
	Started   time.Time          `json:"started,omitzero"`
	Instances []gpuInstanceState `json:"instances,omitempty"`
}

type gpuInstanceState struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // Profile.ID
	Start   int    `json:"start"`
	Serial  uint64 `json:"serial"`

	Compute []computeInstanceState `json:"compute,omitempty"`
}

type computeInstanceState struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"` // NVML_COMPUTE_INSTANCE_PROFILE_*
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	Serial  uint64 `json:"serial"`
	// MIGIndex is the index of the MIG device on its card.
	MIGIndex int `json:"migIndex"`
}

func newStore(root string) *disk.Store[state] {
	return &disk.Store[state]{
		Path: filepath.Join(root, "state.json"),
		Lock: filepath.Join(root, "state.lock"),
		Check: func(st *state) error {
			if st.Version != stateVersion {
				return fmt.Errorf("version %d, this program reads %d", st.Version, stateVersion)
			}
			return nil
		},
		Clone: (*state).clone,
	}
}

// clone makes a copy that can be changed.
func (st *state) clone() *state {
	c := *st
	c.GPUs = append([]gpuState(nil), st.GPUs...)
	for i := range c.GPUs {
		instances := append([]gpuInstanceState(nil), c.GPUs[i].Instances...)
		for j := range instances {
			instances[j].Compute = append([]computeInstanceState(nil), instances[j].Compute...)
		}
		c.GPUs[i].Instances = instances
	}
	c.Processes = append([]Process(nil), st.Processes...)
	c.FaultCounts = append([]int(nil), st.FaultCounts...)
	return &c
}

// nextSerial numbers a new instance.
func (st *state) nextSerial() uint64 {
	st.Serial++
	return st.Serial
}

// gpu finds a card by its address.
func (st *state) gpu(pci string) (*gpuState, bool) {
	for i := range st.GPUs {
		if st.GPUs[i].PCI == pci {
			return &st.GPUs[i], true
		}
	}
	return nil, false
}

// instance finds a GPU instance by its id.
func (g *gpuState) instance(id int) (*gpuInstanceState, bool) {
	for i := range g.Instances {
		if g.Instances[i].ID == id {
			return &g.Instances[i], true
		}
	}
	return nil, false
}

// compute finds a compute instance by its id.
func (i *gpuInstanceState) compute(id int) (*computeInstanceState, bool) {
	for j := range i.Compute {
		if i.Compute[j].ID == id {
			return &i.Compute[j], true
		}
	}
	return nil, false
}

func errNoState(root string) error {
	return fmt.Errorf("no simulated machine in %s: New creates it", root)
}
