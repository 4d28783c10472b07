package follow

import (
	"context"
	"time"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
)

// reserve taints the devices that a defragmentation reserves. The plugin removes the taints at
// the deadline, even if no controller runs.
func (f *Follower) reserve(ctx context.Context, d *v1beta1.Defragmentation) {
	if !d.Active(time.Now()) {
		f.reservation = ""
		f.Publisher.SetReservation(ctx, publisher.Reservation{})
		return
	}
	if f.reservation != d.ID {
		f.reservation = d.ID
		time.AfterFunc(time.Until(d.DeadlineTime.Time), f.Nudge)
	}
	f.Publisher.SetReservation(ctx, publisher.Reservation{ID: d.ID, Devices: d.ReservedDevices})
}
