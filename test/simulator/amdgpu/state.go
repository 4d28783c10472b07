package amdgpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// stateVersion is raised when an older state cannot be read any more.
const stateVersion = 1

// state is what the driver and the GPUs remember between calls. It is kept in
// one file that every process of the machine reads.
type state struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"`
	// DriverVersion and the GPUs' models and addresses tell whether the state
	// belongs to the inventory at hand.
	DriverVersion string `json:"driverVersion"`
	// Installed is the version that the next load brings, Loaded that of the last load; empty: the
	// inventory's.
	Installed string `json:"installed,omitempty"`
	Loaded    string `json:"loaded,omitempty"`
	// Loads counts how often the driver was loaded.
	Loads int `json:"loads"`
	// Unloaded: the driver was unloaded and not loaded again.
	Unloaded bool `json:"unloaded,omitempty"`
	// KFDMajor and DRMMajor are the numbers of the device nodes.
	KFDMajor int `json:"kfdMajor"`
	DRMMajor int `json:"drmMajor"`
	// Generation counts the changes of KFD's topology.
	Generation int `json:"generation"`
	// Serial counts how often a GPU was made known to KFD. It only grows, so that
	// no gpu_id comes back.
	Serial int        `json:"serial"`
	GPUs   []gpuState `json:"gpus"`
	// Order is the GPUs by index as KFD lists them: one that was switched goes to
	// the end.
	Order     []int     `json:"order"`
	Processes []Process `json:"processes,omitempty"`
	// FaultsFile is which faults.yaml the counts belong to.
	FaultsFile  disk.FileID `json:"faultsFile"`
	FaultCounts []int       `json:"faultCounts,omitempty"`
}

// modes are the two modes of a GPU.
type modes struct {
	Compute xcp.Mode       `json:"compute,omitempty"`
	Memory  xcp.MemoryMode `json:"memory,omitempty"`
}

type gpuState struct {
	Model string `json:"model"`
	PCI   string `json:"pci"`
	VF    bool   `json:"vf,omitempty"`
	// AtStart are the modes after a start of the machine.
	AtStart modes `json:"atStart"`
	Now     modes `json:"now"`
	// Requested is the memory mode that the next load of the driver brings.
	Requested xcp.MemoryMode `json:"requested,omitempty"`
	// Selected is the mode that compute_partition_config describes.
	Selected xcp.Mode `json:"selected,omitempty"`
	// Serial is that of the state when the GPU was made known to KFD.
	Serial int `json:"serial"`
	// NodesFrom is when the device nodes of the last switch are there.
	NodesFrom time.Time `json:"nodesFrom,omitzero"`
	// Broken: KFD did not come up again after a switch, and has no node of the GPU.
	Broken bool `json:"broken,omitempty"`
	// Absent: the last load of the driver did not bring the GPU up.
	Absent bool `json:"absent,omitempty"`
	// Groups are the control groups by their folders, since the last load of the driver.
	Groups map[string]memoryGroup `json:"groups,omitempty"`
}

func newStore(root string) *disk.Store[state] {
	return &disk.Store[state]{
		Path: filepath.Join(root, "amdgpu.json"),
		Lock: filepath.Join(root, "amdgpu.lock"),
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
	c.GPUs, c.Order = slices.Clone(st.GPUs), slices.Clone(st.Order)
	c.Processes, c.FaultCounts = slices.Clone(st.Processes), slices.Clone(st.FaultCounts)
	return &c
}

// gpu finds a GPU by its address, -1 when there is none.
func (st *state) gpu(pci string) int {
	return slices.IndexFunc(st.GPUs, func(c gpuState) bool { return c.PCI == pci })
}

// announce adds a GPU to KFD's topology again, behind the others and with other gpu_ids
// (kfd_topology_remove_device and _add_device in Linux' kfd_topology.c).
func (st *state) announce(index int) {
	st.Serial++
	st.Generation++
	st.GPUs[index].Serial = st.Serial
	st.Order = append(slices.DeleteFunc(st.Order, func(i int) bool { return i == index }), index)
}

// load is a load of the driver: KFD knows the GPUs in PCI order.
func (st *state) load() {
	st.Loads++
	st.Unloaded, st.Order, st.Loaded = false, nil, st.Installed
	for i := range st.GPUs {
		c := &st.GPUs[i]
		c.Broken, c.Absent, c.NodesFrom, c.Requested, c.Selected = false, false, time.Time{}, "", c.Now.Compute
		c.Groups = nil
		st.announce(i)
	}
}
