package claim

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Holder is a claim that has, or is getting, a share.
type Holder struct {
	Claim ledger.ClaimRef
	// Device is the share. When it joins, its placement's base exists, and the
	// device has the base's UUID.
	Device ledger.Device
	// Devices are all devices of the claim, Device among them. When one joins, all
	// exist.
	Devices []ledger.Device
	// Others are the shares of the same base that are held beside this one: those of
	// other claims, and those of this claim that come before it. They join before
	// it and leave after it.
	Others []ledger.Device
	// Lapsed is set when the GPU's driver was loaded anew since the share was
	// handed out. How the GPU was set is gone then, and is not to be brought back;
	// what was started for the holder may still run.
	Lapsed bool
}

// Sharer sets up what the holders of shares find: how the GPU is set, and what
// keeps each to its part. The caller holds the lock of the GPU while it calls
// Join or Leave.
type Sharer interface {
	// Settings reads how a GPU is set, before the first share changes it and once
	// what is shared exists. It is nil for a GPU on which sharing changes nothing
	// that must come back.
	Settings(ctx context.Context, p gpu.Placement) (*gpu.Settings, error)

	// Join gets a share ready for its holder. It is idempotent. What takes longer
	// is started, and Join fails with a *NotReadyError until it is there.
	Join(ctx context.Context, h Holder) error

	// Leave takes back what Join did for this holder and, if there are no others,
	// what it did for all. It is idempotent, and no error if nothing was done. All
	// shares of a claim leave together: what serves several of them can go with
	// the first.
	Leave(ctx context.Context, h Holder) error

	// Edits says what a container needs for the share beside what it needs to see
	// the base.
	Edits(ctx context.Context, h Holder) (*cdispecs.ContainerEdits, error)

	// Running names what Join has started and Leave has not ended, whoever it was
	// for and whether it still works or not.
	Running() ([]string, error)

	// Serves names what Join starts for a device of a claim. It is empty if that is
	// nothing, and the name of a GPU (gpu.NameOf) if it is for all shares of it.
	Serves(claim ledger.ClaimRef, d ledger.Device) string

	// Stop ends what runs by a name. It is idempotent. The caller holds the locks
	// of the GPUs that it may be for.
	Stop(ctx context.Context, name string) error
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

// holder is a share of the record as a Sharer sees it, amid the records of other
// claims.
func holder(r ledger.Record, device int, others []ledger.Record) Holder {
	h := Holder{Claim: r.Claim, Device: r.Devices[device], Devices: r.Devices}
	for _, other := range append(others[:len(others):len(others)], ledger.Record{Devices: r.Devices[:device]}) {
		for _, d := range other.Devices {
			if plan.SameBase(d, h.Device) {
				h.Others = append(h.Others, d)
			}
		}
	}
	return h
}
