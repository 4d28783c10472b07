package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/settings"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/allocator"
)

const nodeName = "node-a"

// cardsOf reads an inventory of one vendor the way the plugin does: NVIDIA's
// through NVML, AMD's from the files of the kernel.
func (b *bench) cardsOf(ctx context.Context, name string) ([]gpu.GPU, error) {
	inv, err := inventory.Load(name)
	if err != nil {
		return nil, err
	}
	if len(inv.AMD) > 0 {
		return b.amdCardsOf(ctx, inv)
	}
	root, err := os.MkdirTemp(b.dir, "sim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root) //nolint:errcheck // the whole folder goes in the end
	library, err := simulate.New(inv, simulate.Options{Root: root, Seed: nodeName, Sleep: func(time.Duration) {}})
	if err != nil {
		return nil, err
	}
	driver, err := nvidia.New(nvidia.Config{
		NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: root, SysRoot: filepath.Join(root, "sys"),
	})
	if err != nil {
		return nil, err
	}
	if err := driver.Open(ctx); err != nil {
		return nil, err
	}
	defer driver.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
	return driver.Inventory(ctx)
}

// resources is what a node with these cards publishes.
func resources(node string, cards []gpu.GPU) (resourceslice.DriverResources, error) {
	out := make([]publish.Card, len(cards))
	for i := range cards {
		out[i].GPU = cards[i]
	}
	published, errs := publish.Resources(node, out)
	return published, errors.Join(errs...)
}

// slicesOf are the API objects of a node with these cards.
func slicesOf(cards []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
	return slicesOfNode(nodeName, cards)
}

func slicesOfNode(node string, cards []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
	published, err := resources(node, cards)
	if err != nil {
		return nil, err
	}
	return allocator.Slices(gpu.DriverName, node, published), nil
}

// withShares are the same cards, shared as they are if nobody says otherwise.
// limited: MPS daemons keep the holders to their memory.
func withShares(cards []gpu.GPU, limited bool) ([]gpu.GPU, error) {
	cards = slices.Clone(cards)
	for i := range cards {
		shares, err := share.Devices(&cards[i], settings.Default(), limited)
		if err != nil {
			return nil, err
		}
		cards[i].Placements = append(slices.Clone(cards[i].Placements), shares...)
	}
	return cards, nil
}

// manyCards copies a card often enough, at addresses of their own.
func manyCards(card gpu.GPU, count int) []gpu.GPU {
	cards := make([]gpu.GPU, count)
	for i := range cards {
		c := card
		c.PCIAddress, c.Index, c.Minor = fmt.Sprintf("0000:%02x:00.0", i+1), i, i
		c.UUID = fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i)
		c.Placements = make([]gpu.Placement, len(card.Placements))
		for j, p := range card.Placements {
			p.GPU = c.PCIAddress
			c.Placements[j] = p
		}
		cards[i] = c
	}
	return cards
}
