package instance

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
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// settleDelay is the pause between two looks for a MIG device that NVML does
// not show yet, settleLooks how often it is looked for.
const (
	settleDelay = 20 * time.Millisecond
	settleLooks = 150
)

// Create makes the placement exist. See hardware.Partitioner.
func (c *GPU) Create(p gpu.Placement) (gpu.Partition, error) {
	switch p.Type {
	case gpu.TypeGPU:
		return c.makeWhole(p)
	case gpu.TypeMIG:
		return c.makePartition(p)
	}
	return gpu.Partition{}, fmt.Errorf("placements of type %q are not NVIDIA's", p.Type)
}

// makeWhole makes sure that the GPU is not cut, by whomever: a container that
// gets a GPU in MIG mode sees a device on which nothing runs.
func (c *GPU) makeWhole(p gpu.Placement) (gpu.Partition, error) {
	instances, err := c.instances()
	if err != nil {
		return gpu.Partition{}, err
	}
	if len(instances) > 0 {
		return gpu.Partition{}, fmt.Errorf("GPU %s is cut: %s", c.PCIAddress, c.names(instances))
	}
	if err := c.setMIG(false); err != nil {
		return gpu.Partition{}, err
	}
	uuid, err := c.UUID()
	if err != nil {
		return gpu.Partition{}, err
	}
	return gpu.Partition{GPU: p.GPU, Type: gpu.TypeGPU, UUID: uuid, Complete: true, ID: "GPU"}, nil
}

// makePartition finds or makes the GPU instance, finds or makes the compute
// instance in it, and waits for the MIG device. What it made it takes back when
// a later step fails; what it found it leaves.
func (c *GPU) makePartition(p gpu.Placement) (gpu.Partition, error) {
	if err := c.setMIG(true); err != nil {
		return gpu.Partition{}, err
	}
	made, found, err := c.findOrCreateInstance(p)
	if err != nil {
		return gpu.Partition{}, err
	}
	partition, err := c.fill(made, p)
	if err == nil || found {
		return partition, err
	}
	if undo := c.undoing().destroyInstance(made); undo != nil {
		return gpu.Partition{}, fmt.Errorf("%w; and GPU instance %d could not be removed again: %w", err, made.id, undo)
	}
	return gpu.Partition{}, err
}

// findOrCreateInstance gives the GPU instance at the placement. found tells
// that it was there.
func (c *GPU) findOrCreateInstance(p gpu.Placement) (i instance, found bool, err error) {
	instances, err := c.instances()
	if err != nil {
		return instance{}, false, err
	}
	var inTheWay []instance
	for _, i := range instances {
		partition := i.partition(c.PCIAddress)
		switch {
		case partition.Is(p):
			return i, true, nil
		case partition.Overlaps(p):
			inTheWay = append(inTheWay, i)
		}
	}
	if len(inTheWay) > 0 {
		return instance{}, false, fmt.Errorf("the place is taken by %s", c.names(inTheWay))
	}
	i, err = c.createInstance(p)
	return i, false, err
}

func (c *GPU) createInstance(p gpu.Placement) (instance, error) {
	profiles, err := c.profiles()
	if err != nil {
		return instance{}, err
	}
	n := slices.IndexFunc(profiles, func(q mig.Profile) bool { return q.Name == p.Profile })
	if n < 0 {
		return instance{}, fmt.Errorf("GPU %s has no profile %s", c.PCIAddress, p.Profile)
	}
	handle, err := session.Ask(c.Task, "DeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
		at := nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)}
		return c.Device.CreateGpuInstanceWithPlacement(profileInfo(profiles[n]), &at)
	})
	if err != nil {
		return instance{}, err
	}
	i, err := c.instance(handle, profiles, nil)
	if err == nil {
		return i, nil
	}
	// A GPU instance that cannot be read is still one that we made.
	u := c.undoing()
	if undo := session.Tell(u.Task, "GpuInstanceDestroy", handle.Destroy); undo != nil {
		return instance{}, fmt.Errorf("%w; and the GPU instance could not be removed again: %w", err, undo)
	}
	return instance{}, err
}

// fill makes the compute instance that has all of the GPU instance, unless it
// is there, and returns the finished partition.
func (c *GPU) fill(i instance, p gpu.Placement) (gpu.Partition, error) {
	if len(i.compute) == 0 {
		if err := c.createCompute(i); err != nil {
			return gpu.Partition{}, err
		}
	} else if len(i.compute) > 1 || i.compute[0].slices < i.slices {
		return gpu.Partition{}, fmt.Errorf("GPU instance %d is divided into %d compute instances by somebody else", i.id, len(i.compute))
	}
	return c.settle(i.id, p)
}

// createCompute makes the compute instance that fills the GPU instance. Of the
// kinds with as many slices as it has, the one with most SMs is the full one:
// 1g.67gb of B300 takes one with 18 and one with 30 (kubernetes-sigs/dra-driver-nvidia-gpu#1454).
func (c *GPU) createCompute(i instance) error {
	kinds, err := c.computeProfiles(i.handle)
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
		_, err = session.Ask(c.Task, "GpuInstanceCreateComputeInstance", func() (nvml.ComputeInstance, nvml.Return) {
			return i.handle.CreateComputeInstance(&kind)
		})
		if !errors.Is(err, nvml.ERROR_NOT_SUPPORTED) {
			break // only a kind that the GPU cannot have is a reason to try the next
		}
	}
	return err
}

// settle reads the hardware back until the partition is whole. NVML shows the
// MIG device a moment after the compute instance.
func (c *GPU) settle(id int, p gpu.Placement) (gpu.Partition, error) {
	waiting := fmt.Sprintf("GPU %s: waiting for the MIG device of GPU instance %d", c.PCIAddress, id)
	for range settleLooks {
		instances, err := c.instances()
		if err != nil {
			return gpu.Partition{}, fmt.Errorf("%s: %w", waiting, err)
		}
		n := slices.IndexFunc(instances, func(i instance) bool { return i.id == id })
		if n < 0 {
			return gpu.Partition{}, fmt.Errorf("GPU instance %d vanished after it was made", id)
		}
		partition := instances[n].partition(c.PCIAddress)
		if !partition.Is(p) || partition.Size != p.Size {
			return gpu.Partition{}, fmt.Errorf("asked for slices %d+%d, got %s with %d+%d",
				p.Start, p.Size, partition.Name(), partition.Start, partition.Size)
		}
		if partition.Complete {
			return partition, nil
		}
		if err := c.Sleep(settleDelay); err != nil {
			return gpu.Partition{}, fmt.Errorf("%s: %w", waiting, err)
		}
	}
	return gpu.Partition{}, fmt.Errorf("GPU %s: GPU instance %d has a compute instance, but NVML showed no MIG device for it within %s",
		c.PCIAddress, id, settleDelay*settleLooks)
}

// names lists partitions by device name and NVML's id, for errors.
func (c *GPU) names(instances []instance) string {
	texts := make([]string, len(instances))
	for n, i := range instances {
		p := i.partition(c.PCIAddress)
		texts[n] = fmt.Sprintf("%s (%s)", p.Name(), p.ID)
	}
	return strings.Join(texts, ", ")
}
