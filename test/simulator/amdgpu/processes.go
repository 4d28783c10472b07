package amdgpu

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/load"
)

// Process is a process that has KFD open.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
	// GPUs are the PCI addresses of those that it uses; none: it only has KFD open.
	GPUs []string `json:"gpus,omitempty"`
	// Partition is the one that it uses of them; all of them without it.
	Partition *int `json:"partition,omitempty"`

	load.Use
}

func (p Process) check() error {
	if p.PID < 1 {
		return fmt.Errorf("pid: %d is not a process id", p.PID)
	}
	for i, gpuID := range p.GPUs {
		if !models.IsPCIAddress(gpuID) {
			return fmt.Errorf("gpus[%d]: %q is not an address like 0000:05:00.0", i, gpuID)
		}
	}
	if p.Partition != nil && *p.Partition < 0 {
		return fmt.Errorf("partition: %d is negative", *p.Partition)
	}
	return p.Check()
}

func (p Process) uses(n node, pci string) bool {
	return slices.Contains(p.GPUs, pci) && (p.Partition == nil || *p.Partition == n.partition)
}

// processFiles is what KFD and the kernel show of a process
// (kfd_procfs_add_sysfs_files and kfd_procfs_add_queue in Linux' kfd_process.c).
func (v *view) processFiles(t *tree, p Process, nodes []node) {
	pid := strconv.Itoa(p.PID)
	name := p.Name
	if name == "" {
		name = "python3"
	}
	t.text(path.Join("/proc", pid, "comm"), name)
	dir := path.Join(kfdDir, "proc", pid)
	t.text(dir+"/pasid", strconv.Itoa(0x8000+p.PID%0x1000))
	t.dir(dir + "/queues")
	queue := 0
	for _, n := range nodes {
		if !p.uses(n, v.pci(n.gpu)) {
			continue
		}
		id := strconv.Itoa(int(n.gpuID))
		t.text(dir+"/vram_"+id, strconv.FormatUint(p.Memory(), 10))
		t.text(dir+"/sdma_"+id, "0")
		t.text(dir+"/stats_"+id+"/evicted_ms", "0")
		t.text(dir+"/stats_"+id+"/cu_occupancy", strconv.Itoa(v.model(n.gpu).ComputeUnits/v.partitions(n.gpu)*p.Compute/100))
		q := path.Join(dir, "queues", strconv.Itoa(queue))
		t.text(q+"/gpuid", id)
		t.text(q+"/size", "4096")
		t.text(q+"/type", "2")
		queue++
	}
}

// blocks reports whether the process keeps a GPU from being switched. Older
// drivers ask whether anybody uses KFD at all, newer ones who uses the GPU
// (amdgpu_amdkfd_check_and_lock_kfd).
func (p Process) blocks(pci string, wholeHost bool) bool {
	return wholeHost || slices.Contains(p.GPUs, pci)
}

// StartProcess has a process use KFD until EndProcess, ReloadDriver or Reboot.
func StartProcess(root string, p Process) error {
	if err := p.check(); err != nil {
		return err
	}
	return newStore(root).Update(func(st *state) (*state, error) {
		if st == nil {
			return nil, errNoState(root)
		}
		return st, st.startProcess(p)
	})
}

func (st *state) startProcess(p Process) error {
	if st.Unloaded {
		return errors.New("amdgpu is not loaded: there is no KFD to open")
	}
	for i, gpuID := range p.GPUs {
		if st.gpu(gpuID) < 0 {
			return fmt.Errorf("gpus[%d]: no AMD GPU at %s", i, gpuID)
		}
	}
	st.endProcess(p.PID)
	st.Processes = append(st.Processes, p)
	return nil
}

func (st *state) endProcess(pid int) (had bool) {
	before := len(st.Processes)
	st.Processes = slices.DeleteFunc(st.Processes, func(p Process) bool { return p.PID == pid })
	return len(st.Processes) != before
}

// EndProcess ends a process that StartProcess started.
func EndProcess(root string, pid int) error {
	return newStore(root).Update(func(st *state) (*state, error) {
		if st == nil {
			return nil, errNoState(root)
		}
		if !st.endProcess(pid) {
			return nil, errors.New("no process " + strconv.Itoa(pid) + " uses the simulated KFD")
		}
		return st, nil
	})
}
