package claim

import (
	"context"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Hardware is the cards of a node, as far as claims need them. The caller holds
// the lock of a card while it calls Create, Destroy or Live for it; calls for
// different cards may come at the same time.
//
// Every call returns when ctx ends, with an error that says what it was
// waiting for. Errors need not name the placement: whoever asked names it.
type Hardware interface {
	// Inventory lists the cards in PCI order, with all their placements.
	Inventory(ctx context.Context) ([]gpu.GPU, error)

	// Live lists the partitions that exist on one card now, half-made ones
	// included; none when the card is whole.
	Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error)

	// Create makes the placement exist and returns what the hardware says it
	// is. What an earlier call left half made at exactly this placement is
	// finished, what is there already is returned. For a whole card it makes
	// sure that the card is not cut. For a partition that follows the card's mode
	// it switches the card; the caller makes sure that nothing of another mode is
	// held. A call that fails leaves nothing behind, or says in its error what it
	// could not remove.
	Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error)

	// Destroy removes the partition at the placement, half made or whole. One
	// that is not there is no error; one with a client fails with gpu.ErrInUse.
	// Destroying a whole card, or a partition that follows the card's mode, does
	// nothing.
	Destroy(ctx context.Context, p gpu.Placement) error

	// Edits says what a container needs to see the placement, which exists.
	Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error)

	// CommonEdits says what a container needs beside its devices, which are on
	// these cards: driver files, hooks and environment.
	CommonEdits(ctx context.Context, pciAddresses []string) (*cdispecs.ContainerEdits, error)
}
