package share

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

var _ Runner = (*Daemons)(nil)

// Start implements Runner, like the methods below, with the supervisor of the current
// driver.
func (d *Daemons) Start(ctx context.Context, spec mps.Spec) error {
	return d.supervisor.Load().Start(ctx, spec)
}

// Status implements Runner.
func (d *Daemons) Status(id string) mps.Status { return d.supervisor.Load().Status(id) }

// Wait implements Runner.
func (d *Daemons) Wait(ctx context.Context, id string) error {
	return d.supervisor.Load().Wait(ctx, id)
}

// Stop implements Runner.
func (d *Daemons) Stop(ctx context.Context, id string) error {
	return d.supervisor.Load().Stop(ctx, id)
}

// List implements Runner.
func (d *Daemons) List() ([]string, error) { return d.supervisor.Load().List() }

// PipeDir implements Runner.
func (d *Daemons) PipeDir(id string) string { return d.supervisor.Load().PipeDir(id) }

// ShmDir implements Runner.
func (d *Daemons) ShmDir(id string) string { return d.supervisor.Load().ShmDir(id) }
