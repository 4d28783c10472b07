package sharing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

const (
	// probeTimeout is how long the trial of an MPS daemon may take. On an H200 one
	// answers within 3 s.
	probeTimeout = 15 * time.Second
	// probeInterval is the time between two trials, as long as they fail.
	probeInterval = time.Minute
)

// Daemons is the MPS daemons of the node: whether any work here, and how those are
// that keep the holders of shares to their memory.
type Daemons struct {
	supervisor atomic.Pointer[mps.Supervisor]
	events     *telemetry.Events
	// serves names the daemon that a device of a claim relies on; empty: none.
	serves func(ledger.ClaimRef, ledger.Device) string

	// What follows is for the goroutine that looks. workedUnder and failedUnder are
	// loads of NVIDIA's driver, for which the last trial, at triedAt, went well or
	// failed; toldFailure is set from the telling of a failure to that of its end.
	workedUnder, failedUnder string
	triedAt                  time.Time
	toldFailure              bool

	// mu protects what follows.
	mu sync.Mutex
	// failure is why the last trial failed, nil if it did not.
	failure error
	// problems say what is wrong, by the daemons' names.
	problems map[string]string
	// changed is closed, and replaced, whenever these change.
	changed chan struct{}
}

// NewDaemons knows of no problem, and of no trial.
func NewDaemons(s *mps.Supervisor, events *telemetry.Events) *Daemons {
	d := &Daemons{events: events, problems: map[string]string{}, changed: make(chan struct{}), failure: errors.New("it was not tried yet")}
	d.supervisor.Store(s)
	return d
}

// Supervise has daemons started by another supervisor from now on.
func (d *Daemons) Supervise(s *mps.Supervisor) { d.supervisor.Store(s) }

// SetServes tells which daemon a device of a claim relies on. It is called once, before
// anything is asked.
func (d *Daemons) SetServes(serves func(ledger.ClaimRef, ledger.Device) string) { d.serves = serves }

// Limits tells whether daemons were seen to work under this load of NVIDIA's
// driver, which is empty where there is none. It tries that now if it is not
// known, or if the last try failed some time ago. shared: the failure matters.
func (d *Daemons) Limits(ctx context.Context, load string, shared bool) bool {
	switch {
	case load == "":
		return false
	case load == d.workedUnder:
		return true
	case load == d.failedUnder && time.Since(d.triedAt) < probeInterval:
		return false
	}
	trial, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("it took longer than %s", probeTimeout))
	defer cancel()
	err := d.supervisor.Load().Probe(trial)
	if ctx.Err() != nil {
		return false // the plugin ends
	}
	d.triedAt = time.Now()
	d.mu.Lock()
	d.failure = err
	d.mu.Unlock()
	if err != nil {
		d.failedUnder, d.workedUnder = load, ""
	} else {
		d.failedUnder, d.workedUnder = "", load
	}
	switch {
	case err != nil && shared && !d.toldFailure:
		d.toldFailure = true
		d.events.Warn(ctx, v1alpha1.EventSharesNotLimited, fmt.Sprintf("Nothing keeps the holders of shares of this node's NVIDIA GPUs to their memory (isolation is none), because no MPS daemon works here: %v. Install nvidia-cuda-mps-control and nvidia-cuda-mps-server of the driver's version beside it; this is tried again every minute", err))
	case err == nil && d.toldFailure:
		d.toldFailure = false
		d.events.Note(ctx, v1alpha1.EventSharesLimited, "MPS daemons work on this node now: the holders of shares of its NVIDIA GPUs are kept to their memory, on each GPU once nobody holds a share of it")
	}
	return err == nil
}

// WhyNot says why no daemon works on this node, nil if one does.
func (d *Daemons) WhyNot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// Problem says what is wrong with the daemon that a device of a claim relies on;
// empty if nothing is, or if it relies on none.
func (d *Daemons) Problem(claim ledger.ClaimRef, device *ledger.Device) string {
	if d == nil {
		return ""
	}
	name := d.serves(claim, *device)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problems[name]
}

// Troubled names the daemons with which something is wrong.
func (d *Daemons) Troubled() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.problems))
}

// WhenChanged returns a channel that is closed when the next problem comes or goes.
func (d *Daemons) WhenChanged() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Take takes in the problem of a daemon, empty for none, and tells whether it had
// none before.
func (d *Daemons) Take(name, problem string) (isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.problems[name]
	if before == problem {
		return false
	}
	d.problems[name] = problem
	if problem == "" {
		delete(d.problems, name)
	}
	close(d.changed)
	d.changed = make(chan struct{})
	return before == ""
}
