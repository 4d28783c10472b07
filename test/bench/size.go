package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// sizeFigures: what the slices of a node weigh, as the API server stores them
// and as everyone gets them who watches slices.
func (b *bench) sizeFigures() []Figure {
	return []Figure{{
		Name:    "JSON of the slices of 8 × H200",
		Limit:   AtMost(180, "KB"),
		Measure: func(ctx context.Context) (Reading, error) { return b.weigh(ctx, "h200x8") },
	}}
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
