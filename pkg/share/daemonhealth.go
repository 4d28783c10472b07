package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

const (
	// probeTimeout limits the probe of an MPS daemon. On an H200, one answers within 3 s.
	probeTimeout = 15 * time.Second
	// firstProbeInterval is the time from the first failed probe to the next, which is soon because
	// daemons are slow on a node that has just booted. probeInterval is the longest time.
	firstProbeInterval = 5 * time.Second
	probeInterval      = time.Minute
)

// Daemons is the state of the node's MPS daemons, which limit the memory of shares: whether they
// work on this node, and the problems of running ones.
type Daemons struct {
	supervisor atomic.Pointer[mps.Supervisor]
	events     *telemetry.Events
	// serves names the daemon of a claim's device; empty: it has none.
	serves func(ledger.ClaimRef, ledger.Device) string

	// The next fields are for the goroutine that checks the GPUs. workedUnder or failedUnder
	// is the load of NVIDIA's driver at the last probe. After a failure, the next probe is at
	// retryAt, and interval after the one before. toldFailure is set while a failure is reported.
	workedUnder, failedUnder string
	retryAt                  time.Time
	interval                 time.Duration
	toldFailure              bool

	// mu protects the fields below.
	mu sync.Mutex
	// failure is why the last probe failed, nil if it succeeded.
	failure error
	// problems has the problems by the names of the daemons.
	problems map[string]string
	// changed is closed and replaced whenever problems changes.
	changed chan struct{}
}

// NewDaemons returns Daemons without problems, before the first probe.
func NewDaemons(s *mps.Supervisor, events *telemetry.Events) *Daemons {
	d := &Daemons{events: events, problems: map[string]string{}, changed: make(chan struct{}), failure: errors.New("MPS was not probed yet")}
	d.supervisor.Store(s)
	return d
}

// Supervisor returns the supervisor of the current driver.
func (d *Daemons) Supervisor() Runner { return d.supervisor.Load() }

// Supervise replaces the supervisor.
func (d *Daemons) Supervise(s *mps.Supervisor) { d.supervisor.Store(s) }

// SetServes sets the function that names the daemon of a claim's device. It is called once,
// before all other methods.
func (d *Daemons) SetServes(serves func(ledger.ClaimRef, ledger.Device) string) { d.serves = serves }

// Limits reports whether MPS daemons work with this load of NVIDIA's driver; load is empty if
// there is no driver. If that is unknown, or the last probe failed some time ago, it probes now.
// A failure is reported if shared is set.
func (d *Daemons) Limits(ctx context.Context, load string, shared bool) bool {
	switch {
	case load == "":
		return false
	case load == d.workedUnder:
		return true
	case load == d.failedUnder && time.Now().Before(d.retryAt):
		return false
	}
	trial, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("it took longer than %s", probeTimeout))
	defer cancel()
	err := d.supervisor.Load().Probe(trial)
	if ctx.Err() != nil {
		return false // the plugin is stopping
	}
	d.mu.Lock()
	d.failure = err
	d.mu.Unlock()
	if err != nil {
		d.failedUnder, d.workedUnder = load, ""
		d.interval = nextInterval(d.interval)
		d.retryAt = time.Now().Add(d.interval)
	} else {
		d.failedUnder, d.workedUnder, d.interval = "", load, 0
	}
	switch {
	case err != nil && shared && !d.toldFailure:
		d.toldFailure = true
		d.events.Warn(ctx, names.EventSharesNotLimited, fmt.Sprintf("Nothing limits the memory of shares of this node's NVIDIA GPUs (isolation is none), because no MPS daemon works on this node: %v. Install nvidia-cuda-mps-control and nvidia-cuda-mps-server of the driver's version beside it; this is retried at least once a minute", err))
	case err == nil && d.toldFailure:
		d.toldFailure = false
		d.events.Note(ctx, names.EventSharesLimited, "MPS daemons work on this node now, so the memory of shares of its NVIDIA GPUs is limited, on each GPU once no claim holds a share of it")
	}
	return err == nil
}

// nextInterval returns the time to the next probe after one that failed, given the time before it.
func nextInterval(last time.Duration) time.Duration {
	return min(max(2*last, firstProbeInterval), probeInterval)
}

// WhyNot says why MPS daemons do not work on this node, nil if they do.
func (d *Daemons) WhyNot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// Problem returns the problem of the daemon of a claim's device; empty if there is none.
func (d *Daemons) Problem(claim ledger.ClaimRef, device *ledger.Device) string {
	if d == nil {
		return ""
	}
	name := d.serves(claim, *device)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problems[name]
}

// Troubled names the daemons that have a problem.
func (d *Daemons) Troubled() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.problems))
}

// WhenChanged returns a channel that is closed when the problems change.
func (d *Daemons) WhenChanged() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Take sets the problem of a daemon, empty for none, and reports whether it had none before.
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
