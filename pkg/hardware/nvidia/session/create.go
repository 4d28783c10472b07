package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

// settleDelay is the pause between two looks for a MIG device that NVML does not list
// yet, settleLooks their number.
const (
	settleDelay = 20 * time.Millisecond
	settleLooks = 150
)

// Create makes the placement exist. See hardware.Driver.
func (g *GPU) Create(p gpu.Placement) (gpu.Partition, error) {
	switch p.Type {
	case gpu.TypeGPU:
		return g.makeWhole(p)
	case gpu.TypeMIG:
		return g.makePartition(p)
	}
	return gpu.Partition{}, fmt.Errorf("placements of type %q are not NVIDIA's", p.Type)
}

// makeWhole makes sure that the GPU has no partitions, and that MIG mode is off: nothing
// runs on a GPU in MIG mode itself.
func (g *GPU) makeWhole(p gpu.Placement) (gpu.Partition, error) {
	instances, err := g.instances()
	if err != nil {
		return gpu.Partition{}, err
	}
	if len(instances) > 0 {
		return gpu.Partition{}, fmt.Errorf("GPU %s is partitioned: %s", g.PCIAddress, g.names(instances))
	}
	if err := g.setMIG(false); err != nil {
		return gpu.Partition{}, err
	}
	// The calls so far may be answered by the library, also for a GPU that must be reset.
	if _, err := g.TotalMemory(); err != nil {
		return gpu.Partition{}, err
	}
	uuid, err := g.UUID()
	if err != nil {
		return gpu.Partition{}, err
	}
	return gpu.Partition{GPU: p.GPU, Type: gpu.TypeGPU, UUID: uuid, Complete: true, ID: "GPU"}, nil
}

// makePartition finds or creates the GPU instance and the compute instance in it, and
// waits for the MIG device. If a step fails, it destroys what it created and leaves what
// it found.
func (g *GPU) makePartition(p gpu.Placement) (gpu.Partition, error) {
	if err := g.setMIG(true); err != nil {
		return gpu.Partition{}, err
	}
	made, found, err := g.findOrCreateInstance(p)
	if err != nil {
		return gpu.Partition{}, err
	}
	partition, err := g.fill(made, p)
	if err == nil || found {
		return partition, err
	}
	if undo := g.Undoing().destroyInstance(made); undo != nil {
		return gpu.Partition{}, fmt.Errorf("%w; and GPU instance %d could not be removed again: %w", err, made.id, undo)
	}
	return gpu.Partition{}, err
}

// findOrCreateInstance returns the GPU instance at the placement. found reports that it
// existed before.
func (g *GPU) findOrCreateInstance(p gpu.Placement) (i instance, found bool, err error) {
	instances, err := g.instances()
	if err != nil {
		return instance{}, false, err
	}
	var inTheWay []instance
	for _, i := range instances {
		partition := i.partition(g.PCIAddress)
		switch {
		case partition.Is(p):
			return i, true, nil
		case partition.Overlaps(p):
			inTheWay = append(inTheWay, i)
		}
	}
	if len(inTheWay) > 0 {
		return instance{}, false, fmt.Errorf("the place is taken by %s", g.names(inTheWay))
	}
	i, err = g.createInstance(p)
	return i, false, err
}

func (g *GPU) createInstance(p gpu.Placement) (instance, error) {
	profiles, err := g.profiles()
	if err != nil {
		return instance{}, err
	}
	n := slices.IndexFunc(profiles, func(q mig.Profile) bool { return q.Name == p.Profile })
	if n < 0 {
		return instance{}, fmt.Errorf("GPU %s has no profile %s", g.PCIAddress, p.Profile)
	}
	handle, err := Ask(g.Task, "DeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
		at := nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)}
		return g.Device.CreateGpuInstanceWithPlacement(profileInfo(profiles[n]), &at)
	})
	if err != nil {
		return instance{}, err
	}
	i, err := g.instance(handle, profiles, nil)
	if err == nil {
		return i, nil
	}
	// A GPU instance that cannot be read is still one that we created.
	u := g.Undoing()
	if undo := Tell(u.Task, "GpuInstanceDestroy", handle.Destroy); undo != nil {
		return instance{}, fmt.Errorf("%w; and the GPU instance could not be removed again: %w", err, undo)
	}
	return instance{}, err
}

// fill creates the compute instance that has all of the GPU instance, unless it exists,
// and returns the complete partition.
func (g *GPU) fill(i instance, p gpu.Placement) (gpu.Partition, error) {
	if len(i.compute) == 0 {
		if err := g.createCompute(i); err != nil {
			return gpu.Partition{}, err
		}
	} else if len(i.compute) > 1 || i.compute[0].slices < i.slices {
		return gpu.Partition{}, fmt.Errorf("GPU instance %d is divided into %d compute instances by somebody else", i.id, len(i.compute))
	}
	return g.settle(i.id, p)
}

// createCompute creates the compute instance that fills the GPU instance. Of the profiles
// with as many slices, the one with the most SMs is the full one: 1g.67gb of B300 has one
// with 18 SMs and one with 30 (kubernetes-sigs/dra-driver-nvidia-gpu#1454).
func (g *GPU) createCompute(i instance) error {
	kinds, err := g.computeProfiles(i.handle)
	if err != nil {
		return err
	}
	slicesOf := func(k nvml.ComputeInstanceProfileInfo) int { return int(k.SliceCount) }
	kinds = slices.DeleteFunc(kinds, func(k nvml.ComputeInstanceProfileInfo) bool { return slicesOf(k) != i.slices })
	slices.SortStableFunc(kinds, func(a, b nvml.ComputeInstanceProfileInfo) int {
		return -cmp.Compare(a.MultiprocessorCount, b.MultiprocessorCount)
	})
	if len(kinds) == 0 {
		return fmt.Errorf("GPU instance %d (%s) offers no compute instance with its %d slices", i.id, i.profile, i.slices)
	}
	for _, kind := range kinds {
		_, err = Ask(g.Task, "GpuInstanceCreateComputeInstance", func() (nvml.ComputeInstance, nvml.Return) {
			return i.handle.CreateComputeInstance(&kind)
		})
		if !errors.Is(err, nvml.ERROR_NOT_SUPPORTED) {
			break // only an unsupported profile is a reason to try the next
		}
	}
	return err
}

// settle reads the hardware back until the partition is complete. NVML lists the MIG
// device a moment after the compute instance.
func (g *GPU) settle(id int, p gpu.Placement) (gpu.Partition, error) {
	waiting := fmt.Sprintf("GPU %s: waiting for the MIG device of GPU instance %d", g.PCIAddress, id)
	for range settleLooks {
		instances, err := g.instances()
		if err != nil {
			return gpu.Partition{}, fmt.Errorf("%s: %w", waiting, err)
		}
		n := slices.IndexFunc(instances, func(i instance) bool { return i.id == id })
		if n < 0 {
			return gpu.Partition{}, fmt.Errorf("GPU instance %d vanished after it was made", id)
		}
		partition := instances[n].partition(g.PCIAddress)
		if !partition.Is(p) || partition.Size != p.Size {
			return gpu.Partition{}, fmt.Errorf("asked for slices %d+%d, got %s with %d+%d",
				p.Start, p.Size, partition.Name(), partition.Start, partition.Size)
		}
		if partition.Complete {
			return partition, nil
		}
		if err := sleep.For(g.Context(), settleDelay); err != nil {
			return gpu.Partition{}, fmt.Errorf("%s: %w", waiting, err)
		}
	}
	return gpu.Partition{}, fmt.Errorf("GPU %s: GPU instance %d has a compute instance, but NVML showed no MIG device for it within %s",
		g.PCIAddress, id, settleDelay*settleLooks)
}

// names lists instances by device name and NVML's id, for errors.
func (g *GPU) names(instances []instance) string {
	texts := make([]string, len(instances))
	for n, i := range instances {
		p := i.partition(g.PCIAddress)
		texts[n] = fmt.Sprintf("%s (%s)", p.Name(), p.ID)
	}
	return strings.Join(texts, ", ")
}
