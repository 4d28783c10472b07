package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// amdGPUsOf reads a machine's GPUs of AMD's from a simulated kernel.
func (b *bench) amdGPUsOf(ctx context.Context, inv *models.Inventory) ([]gpu.GPU, error) {
	kernel, stop, err := b.newKernel(inv)
	if err != nil {
		return nil, err
	}
	defer stop()
	driver, err := amd.New(amd.Config{Files: kernel})
	if err != nil {
		return nil, err
	}
	return driver.Inventory(ctx)
}

// inMemory is a file system that no disk is behind.
const inMemory = "/dev/shm"

// newKernel starts a simulated kernel whose hardware answers at once. What a real
// one keeps in memory this one keeps in files, which should be as quick where the
// machine lets us: a write to sysfs waits for no disk.
func (b *bench) newKernel(inv *models.Inventory) (kernel *amdgpu.Kernel, stop func(), err error) {
	root, err := os.MkdirTemp(inMemory, "tranche-bench")
	if err != nil {
		root, err = os.MkdirTemp(b.dir, "amd")
	}
	if err != nil {
		return nil, nil, err
	}
	stop = func() { _ = os.RemoveAll(root) }
	kernel, err = amdgpu.New(inv, amdgpu.Options{Root: root, Seed: nodeName, Sleep: func(time.Duration) {}})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return kernel, stop, nil
}

// timeDiscovery takes the time that a plugin which has just started needs to know
// all GPUs and their live partitions, with every GPU in its finest mode.
func (b *bench) timeDiscovery(ctx context.Context) (figures.Reading, error) {
	inv, err := models.LoadInventory(amdInventory)
	if err != nil {
		return figures.Reading{}, err
	}
	for i := range inv.AMD {
		inv.AMD[i].ComputeMode = finestMode
	}
	kernel, stop, err := b.newKernel(inv)
	if err != nil {
		return figures.Reading{}, err
	}
	defer stop()
	partitions := 0
	times, err := inTurns(discoveryRounds, func() (float64, error) {
		start := time.Now()
		partitions, err = discover(ctx, kernel)
		return time.Since(start).Seconds(), err
	})
	if err != nil {
		return figures.Reading{}, err
	}
	return figures.Reading{
		Value: figures.Median(times[0]) * 1e3,
		Seen:  fmt.Sprintf("%d partitions, median of %d", partitions, discoveryRounds),
	}, nil
}

// discover counts the live partitions.
func discover(ctx context.Context, files sysfs.Files) (partitions int, err error) {
	driver, err := amd.New(amd.Config{Files: files})
	if err != nil {
		return 0, err
	}
	if err := driver.Open(ctx); err != nil {
		return 0, err
	}
	gpus, err := driver.Inventory(ctx)
	if err != nil {
		return 0, err
	}
	for _, g := range gpus {
		live, err := driver.Live(ctx, g.PCIAddress)
		if err != nil {
			return 0, err
		}
		partitions += len(live)
	}
	return partitions, driver.Close(ctx)
}
