package claim

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Holder is a claim that holds a share, or is getting one.
type Holder struct {
	Claim ledger.ClaimRef
	// Device is the share. When it joins, its placement's base exists, and the
	// device has the base's UUID.
	Device ledger.Device
	// Devices are all devices of the claim, Device among them. When one joins, all
	// exist.
	Devices []ledger.Device
	// Others are the other held shares of the same base: those of other claims, and those
	// of this claim that come before it. They join before it and leave after it.
	Others []ledger.Device
	// Lapsed is set if the GPU's driver was reloaded since the share was prepared. Then the
	// settings of the GPU are gone and must not be restored, but daemons may still run.
	Lapsed bool
}

// Sharer sets up shares: the settings of the GPU, and a daemon that enforces limits. The caller
// of Join and Leave holds the lock of the GPU.
type Sharer interface {
	// Settings reads the settings of a GPU that the first share changes and the last one
	// restores; nil if there are none. The base must exist.
	Settings(ctx context.Context, p gpu.Placement) (*gpu.Settings, error)

	// Join prepares a share for its holder. It is idempotent. If a daemon must be started,
	// Join fails with a *NotReadyError until that is ready.
	Join(ctx context.Context, h Holder) error

	// Leave undoes what Join did for this holder and, if there are no others, for all. It is
	// idempotent. All shares of a claim leave together, so a daemon of several shares can be
	// stopped with the first.
	Leave(ctx context.Context, h Holder) error

	// Edits returns what a container needs for the share in addition to the base.
	Edits(ctx context.Context, h Holder) (*cdispecs.ContainerEdits, error)

	// Running names all daemons that Join has started and Leave has not stopped, including
	// dead ones.
	Running() ([]string, error)

	// Serves names the daemon that Join starts for a device of a claim: empty if it starts
	// none, and the name of the GPU (gpu.NameOf) if the daemon serves all shares of it.
	Serves(claim ledger.ClaimRef, d ledger.Device) string

	// Stop stops a daemon. It is idempotent. The caller holds the locks of the GPUs that
	// the daemon may serve.
	Stop(ctx context.Context, name string) error
}

// NotReadyError says that a share needs a daemon that was started and is not ready yet. No lock
// is held while waiting.
type NotReadyError struct {
	// What names the daemon in messages.
	What string
	// Wait returns nil when Join should be called again, or the reason why that would fail.
	Wait func(context.Context) error
}

func (e *NotReadyError) Error() string { return fmt.Sprintf("%s is not ready yet", e.What) }

// holder returns the Holder of a device of the record. others are the records of other claims.
func holder(r ledger.Record, device int, others []ledger.Record) Holder {
	h := Holder{Claim: r.Claim, Device: r.Devices[device], Devices: r.Devices}
	for _, other := range append(others[:len(others):len(others)], ledger.Record{Devices: r.Devices[:device]}) {
		for _, d := range other.Devices {
			if steps.SameBase(d, h.Device) {
				h.Others = append(h.Others, d)
			}
		}
	}
	return h
}
