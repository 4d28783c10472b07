package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// sizeFigures: what the slices of a node weigh, as the API server stores them
// and as everyone gets them who watches slices.
func (b *bench) sizeFigures() []Figure {
	var all []Figure
	for _, node := range []struct {
		name, inventory string
		limit           float64
	}{{"8 × H200", "h200x8", 180}, {"8 × MI300X", "mi300x8", 110}} {
		all = append(all, Figure{
			Name:    "JSON of the slices of " + node.name,
			Limit:   AtMost(node.limit, "KB"),
			Measure: func(ctx context.Context) (Reading, error) { return b.weigh(ctx, node.inventory) },
		})
	}
	return all
}

func (b *bench) weigh(ctx context.Context, inventory string) (Reading, error) {
	cards, err := b.cardsOf(ctx, inventory)
	if err != nil {
		return Reading{}, err
	}
	published, err := slicesOf(cards)
	if err != nil {
		return Reading{}, err
	}
	size, devices := 0, 0
	for _, slice := range published {
		slice.UID, slice.ResourceVersion = "6f0c0ed8-30ab-4a4b-9a4b-0d1f0cbe7a11", "123456789"
		slice.OwnerReferences[0].UID = slice.UID
		data, err := json.Marshal(slice)
		if err != nil {
			return Reading{}, err
		}
		size += len(data)
		devices += len(slice.Spec.Devices)
	}
	return Reading{Value: float64(size) / 1000, Seen: fmt.Sprintf("%d devices in %d slices", devices, len(published))}, nil
}
