package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

// sizeFigures: what the slices of a node weigh, as the API server stores them
// and as everyone gets them who watches slices. Devices for monitors are 5 KB of each.
func (b *bench) sizeFigures() []figures.Figure {
	var all []figures.Figure
	for _, node := range []struct {
		name, inventory string
		shared          bool
		limit           float64
	}{
		{"8 × H200", "h200x8", false, 182}, {"8 × H200 with shares of the GPUs", "h200x8", true, 205},
		{"8 × MI300X", "mi300x8", false, 113}, {"8 × MI300X with shares of the GPUs", "mi300x8", true, 128},
	} {
		all = append(all, figures.Figure{
			Name:    "JSON of the slices of " + node.name,
			Limit:   figures.AtMost(node.limit, "KB"),
			Measure: func(ctx context.Context) (figures.Reading, error) { return b.weigh(ctx, node.inventory, node.shared) },
		})
	}
	return all
}

func (b *bench) weigh(ctx context.Context, inventory string, shared bool) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, inventory)
	if err == nil && shared {
		gpus, err = nodes.WithShares(gpus, true)
	}
	if err != nil {
		return figures.Reading{}, err
	}
	published, err := slicesOf(gpus)
	if err != nil {
		return figures.Reading{}, err
	}
	size, devices := 0, 0
	for _, slice := range published {
		slice.UID, slice.ResourceVersion = "6f0c0ed8-30ab-4a4b-9a4b-0d1f0cbe7a11", "123456789"
		slice.OwnerReferences[0].UID = slice.UID
		data, err := json.Marshal(slice)
		if err != nil {
			return figures.Reading{}, err
		}
		size += len(data)
		devices += len(slice.Spec.Devices)
	}
	return figures.Reading{Value: float64(size) / 1000, Seen: fmt.Sprintf("%d devices in %d slices", devices, len(published))}, nil
}
