package claim

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Holder is a claim that has, or is getting, a share.
type Holder struct {
	Claim ledger.ClaimRef
	// Device is the share. Its placement's base exists, and the device has the
	// base's UUID.
	Device ledger.Device
	// Devices are all devices of the claim, Device among them.
	Devices []ledger.Device
	// Others are the shares that exist beside this one on the same base, of other
	// claims and of this one.
	Others []ledger.Device
}

// Sharer sets up what the holders of shares find: how the card is set, and what
// keeps each to its part. The caller holds the lock of the card while it calls
// Join or Leave.
type Sharer interface {
	// Settings reads how a card is set, before the first share changes it. It is
	// nil for a card on which sharing changes nothing that must come back.
	Settings(ctx context.Context, p gpu.Placement) (*gpu.CardSettings, error)

	// Join gets a share ready for its holder. It is idempotent. What takes longer
	// is started, and Join fails with a *NotReadyError until it is there.
	Join(ctx context.Context, h Holder) error

	// Leave takes back what Join did for this holder and, if there are no others,
	// what it did for all. It is idempotent, and no error if nothing was done.
	Leave(ctx context.Context, h Holder) error

	// Edits says what a container needs for the share beside what it needs to see
	// the base.
	Edits(ctx context.Context, h Holder) (*cdispecs.ContainerEdits, error)
}

// NotReadyError says that something was started that takes a while. Nobody
// holds a lock meanwhile.
type NotReadyError struct {
	// What is being waited for, for people.
	What string
	// Wait returns when it is worth asking again, or with the reason why it never
	// will be.
	Wait func(context.Context) error
}

func (e *NotReadyError) Error() string { return fmt.Sprintf("%s is not ready yet", e.What) }
