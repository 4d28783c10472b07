package amd

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// Modes reads how a GPU is set, and what it can be set to. It is empty for a GPU
// that cannot be cut; for one that amdgpu does not drive, whose files are gone, too, it
// fails with a *HealthError.
func (d *Driver) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	return onGPU(ctx, d, pciAddress, (*gpuHandle).readModes)
}

func (c *gpuHandle) readModes() (gpu.Modes, error) {
	if err := c.bound(); err != nil {
		return gpu.Modes{}, err
	}
	l, err := c.look()
	if err != nil || l.mode == "" {
		return gpu.Modes{}, err
	}
	memory, err := c.memoryMode()
	if err != nil {
		return gpu.Modes{}, err
	}
	computes, err := c.modes(l.mode, memory, l.nodes())
	if err != nil {
		return gpu.Modes{}, err
	}
	memories, err := c.memoryModes(memory)
	if err != nil {
		return gpu.Modes{}, err
	}
	legal, err := c.modesByMemory(memory, computes, l)
	if err != nil {
		return gpu.Modes{}, err
	}
	return gpu.Modes{
		Compute: string(l.mode), Computes: xcp.Names(computes),
		Memory: string(memory), Memories: texts(memories), Legal: legal,
	}, nil
}

func texts[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// SetComputePartition puts a GPU into a mode and waits until all of its partitions can
// be used: each has its node in KFD's topology and its device node. A GPU in use is
// asked again until Config.BusyPatience or ctx ends; then the error is a *BusyError,
// which names the processes. One that has fewer partitions than the mode should
// have stays in the mode, and the error says which is missing.
func (d *Driver) SetComputePartition(ctx context.Context, pciAddress, mode string) error {
	want, err := parseMode("compute", mode, xcp.ParseModes)
	if err != nil {
		return err
	}
	if err := d.switchTo(ctx, pciAddress, want); err != nil {
		return err
	}
	count, err := onGPU(ctx, d, pciAddress, func(c *gpuHandle) (int, error) {
		l, err := c.look()
		return len(l.partitions), err
	})
	if err != nil {
		return err
	}
	for index := range count {
		if _, err := d.await(ctx, pciAddress, want, index); err != nil {
			return err
		}
	}
	return nil
}

// parseMode reads a mode as it is written by us: one word.
func parseMode[T ~string](kind, text string, parse func(string) []T) (T, error) {
	if modes := parse(text); len(modes) == 1 && string(modes[0]) == text {
		return modes[0], nil
	}
	return "", fmt.Errorf("%q is no %s mode of AMD's GPUs", text, kind)
}
