package amdgpu

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// view is the machine at one moment: what the inventory has, what the state
// remembers and what the faults change of it.
type view struct {
	inv    *models.Inventory
	seed   string
	st     *state
	faults *Faults
}

func (k *Kernel) view(st *state, faults *Faults) *view {
	return &view{inv: k.inventory, seed: k.seed, st: st, faults: faults}
}

func (v *view) model(gpuIndex int) *models.AMDModel { return v.inv.AMD[gpuIndex].Model }

func (v *view) pci(gpuIndex int) string { return v.inv.AMD[gpuIndex].PCI }

// lost reports whether the GPU fell off the bus.
func (v *view) lost(gpuIndex int) bool { return slices.Contains(v.faults.Lost, v.pci(gpuIndex)) }

// bound reports whether the driver has the GPU.
func (v *view) bound(gpuIndex int) bool {
	return !v.st.Unloaded && !v.st.GPUs[gpuIndex].Absent && !v.lost(gpuIndex)
}

// resetting reports whether the GPU is being reset.
func (v *view) resetting(gpuIndex int) bool {
	return slices.Contains(v.faults.Resetting, v.pci(gpuIndex))
}

// modes are those that the GPU is in. A memory mode that a fault set comes
// with the compute mode that the driver chooses with it, unless the GPU's own
// goes with both.
func (v *view) modes(gpuIndex int) modes {
	return v.faults.modes(v.st.GPUs[gpuIndex])
}

// legal are the compute modes that the GPU can be put into now, in the kernel's
// order.
func (v *view) legal(gpuIndex int) []xcp.Mode {
	legal := xcp.Legal(v.model(gpuIndex).Chip(false), v.modes(gpuIndex).Memory)
	return slices.DeleteFunc(v.model(gpuIndex).Modes(), func(m xcp.Mode) bool { return !slices.Contains(legal, m) })
}

// partitions is how many the GPU has.
func (v *view) partitions(gpuIndex int) int {
	if !v.model(gpuIndex).HasPartitions() {
		return 1
	}
	return v.modes(gpuIndex).Compute.Count(v.model(gpuIndex).XCCs)
}

// hasMinor reports whether DRM had a number left for a partition of a GPU. A
// display adapter beside the GPUs takes one of them.
func (v *view) hasMinor(gpuIndex, partition int) bool {
	last := models.FirstRenderMinor + models.MaxRenderMinors - 1
	return !v.inv.AMDDriver.DisplayAdapter || v.inv.RenderMinor(gpuIndex)+partition != last
}

// known reports whether KFD has a node of the partition.
func (v *view) known(gpuIndex, partition int) bool {
	return v.bound(gpuIndex) && !v.st.GPUs[gpuIndex].Broken && v.hasMinor(gpuIndex, partition) && !v.faults.missing(missingKFD, v.pci(gpuIndex), partition)
}

// uniqueID is what KFD calls a partition's, which with some drivers is that of
// the GPU.
func (v *view) uniqueID(gpuIndex, partition int) uint64 {
	id := v.inv.UniqueID(v.seed, gpuIndex)
	if !v.inv.AMDDriver.UniquePerPartition || v.partitions(gpuIndex) == 1 {
		return id
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x %d", id, partition)
	return h.Sum64()
}

// node is a node of KFD's topology that is a partition or a whole GPU.
type node struct {
	gpu, partition int
	gpuID          uint32
}

// nodes are those of the GPUs, in KFD's order. gpu_ids have 16 bits and are told
// apart by counting up (kfd_generate_gpu_id in Linux' kfd_topology.c).
func (v *view) nodes() []node {
	var nodes []node
	used := map[uint32]bool{0: true}
	for _, gpuIndex := range v.st.Order {
		for partition := range v.partitions(gpuIndex) {
			if !v.known(gpuIndex, partition) {
				continue
			}
			h := fnv.New32a()
			_, _ = fmt.Fprintf(h, "%s %d %d", v.pci(gpuIndex), v.st.GPUs[gpuIndex].Serial, partition)
			id := h.Sum32() & 0xffff
			for used[id] {
				id = (id + 1) & 0xffff
			}
			used[id] = true
			nodes = append(nodes, node{gpu: gpuIndex, partition: partition, gpuID: id})
		}
	}
	return nodes
}

// processes are the processes that use KFD, whoever started them.
func (v *view) processes() []Process {
	return slices.Concat(v.st.Processes, v.faults.Processes)
}

// generation is KFD's number of the topology. Faults that change the topology
// change it too.
func (v *view) generation() int {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, v.faults.Nodes, v.faults.Lost, v.faults.MemoryModes)
	return v.st.Generation<<20 | int(h.Sum32()&0xfffff)
}

// tree makes the files of the machine.
func (v *view) tree() *tree {
	t := &tree{files: map[string]*file{}, boot: v.st.BootID, loads: v.st.Loads, generation: v.generation()}
	t.dir("/")
	t.text("/proc/sys/kernel/random/boot_id", v.st.BootID)
	for gpuIndex := range v.inv.AMD {
		v.pciFiles(t, gpuIndex)
	}
	for i := range v.inv.GPUs {
		v.otherGPUFiles(t, &v.inv.GPUs[i])
	}
	if !v.st.Unloaded {
		v.driverFiles(t)
	}
	t.sort()
	return t
}

// driverFiles are those that go with the driver.
func (v *view) driverFiles(t *tree) {
	v.moduleFiles(t)
	for gpuIndex := range v.inv.AMD {
		if v.bound(gpuIndex) {
			v.gpuFiles(t, gpuIndex)
			v.nodeFiles(t, gpuIndex)
		}
	}
	t.add("/dev/kfd", v.device(v.st.KFDMajor, 0))
	nodes := v.nodes()
	v.topologyFiles(t, nodes)
	for _, p := range v.processes() {
		v.processFiles(t, p, nodes)
	}
}
