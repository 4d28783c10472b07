package sharing

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/share"
)

var _ share.Daemons = (*Daemons)(nil)

// Start implements share.Daemons, like the methods below, with the supervisor of the current
// driver.
func (d *Daemons) Start(ctx context.Context, spec mps.Spec) error {
	return d.supervisor.Load().Start(ctx, spec)
}

// Status implements share.Daemons.
func (d *Daemons) Status(id string) mps.Status { return d.supervisor.Load().Status(id) }

// Wait implements share.Daemons.
func (d *Daemons) Wait(ctx context.Context, id string) error {
	return d.supervisor.Load().Wait(ctx, id)
}

// Stop implements share.Daemons.
func (d *Daemons) Stop(ctx context.Context, id string) error {
	return d.supervisor.Load().Stop(ctx, id)
}

// List implements share.Daemons.
func (d *Daemons) List() ([]string, error) { return d.supervisor.Load().List() }

// PipeDir implements share.Daemons.
func (d *Daemons) PipeDir(id string) string { return d.supervisor.Load().PipeDir(id) }

// ShmDir implements share.Daemons.
func (d *Daemons) ShmDir(id string) string { return d.supervisor.Load().ShmDir(id) }
