package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

const (
	// sharersAtOnce get shares of one GPU at the same time, each with a daemon.
	sharersAtOnce = 4
	// slowDaemon is how long a daemon takes until it answers, where it is measured
	// whether others wait for it.
	slowDaemon = 1500 * time.Millisecond
	// readyRounds is how often a daemon is brought up.
	readyRounds = 7
)

// daemonFigures: shares that an MPS daemon of their own keeps to their memory. The
// daemon is the simulator's, and a process like the real one.
func (b *bench) daemonFigures() []figures.Figure {
	return []figures.Figure{
		{
			Name:    "Prepare of a share until its MPS daemon is ready",
			Limit:   figures.AtMost(1, "s"),
			Measure: b.timeReady,
		},
		{
			Name:    fmt.Sprintf("%d shares of one GPU at once, against one, daemons ready after %s", sharersAtOnce, slowDaemon),
			Limit:   figures.AtMost(1.5, "×"),
			Measure: b.timeSharers,
		},
	}
}

// daemonRig is a plugin whose shares have daemons, and claims for shares of one
// GPU that it knows.
type daemonRig struct {
	*rig
	claims     []*resourceapi.ResourceClaim
	supervisor *mps.Supervisor
}

// newDaemonRig makes the plugin. delay is how long a daemon takes until it answers;
// zero: as long as the real one, about.
func (b *bench) newDaemonRig(ctx context.Context, delay time.Duration) (*daemonRig, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can start MPS daemons")
	}
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return nil, err
	}
	if gpus, err = nodes.WithShares(gpus, true); err != nil {
		return nil, err
	}
	d := &daemonRig{}
	if d.supervisor, err = b.newSupervisor(ctx, delay); err != nil {
		return nil, err
	}
	sharer := share.New(share.Config{Daemons: func() share.Runner { return d.supervisor }})
	if d.rig, err = b.newRig(ctx, &memory{gpus: gpus, shares: sharer}); err != nil {
		return nil, err
	}
	for n := range sharersAtOnce {
		c := shareClaimFor(n, gpus[0].Name())
		if err := d.allocate(c); err != nil {
			return nil, errors.Join(err, d.stop(ctx))
		}
		d.claims = append(d.claims, c)
	}
	return d, nil
}

// newSupervisor is what runs the daemons of a simulated driver.
func (b *bench) newSupervisor(ctx context.Context, delay time.Duration) (*mps.Supervisor, error) {
	root, err := os.MkdirTemp(b.dir, "mps")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(root, nvtools.DriverBin)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	for _, name := range nvtools.Programs() {
		if out, err := exec.CommandContext(ctx, "cp", b.driver, filepath.Join(bin, name)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("copy %s (make simulated-driver makes it): %w: %s", b.driver, err, out)
		}
	}
	if delay > 0 {
		faults := nvdriver.Faults{MPS: &nvtools.Faults{StartDelay: &metav1.Duration{Duration: delay}}}
		if err := nvdriver.SetFaults(root, faults); err != nil {
			return nil, err
		}
	}
	launcher, err := filepath.Abs(b.plugin)
	if err != nil {
		return nil, err
	}
	return mps.New(mps.Config{
		Dir: filepath.Join(root, "d"), DriverRoot: filepath.Join(root, "driver"), Launcher: []string{launcher, mps.LaunchCommand},
	}), nil
}

// stop ends the daemons that are left, which would outlive the measurement.
func (d *daemonRig) stop(ctx context.Context) error {
	d.rig.stop()
	return stopDaemons(ctx, d.supervisor)
}

func stopDaemons(ctx context.Context, s *mps.Supervisor) error {
	ctx = context.WithoutCancel(ctx)
	ids, err := s.List()
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, s.Stop(ctx, id))
	}
	return errors.Join(errs...)
}

// timeReady takes the time from the kubelet's call to its answer, after which the
// container's processes find their daemon and it has the limits.
func (b *bench) timeReady(ctx context.Context) (reading figures.Reading, err error) {
	d, err := b.newDaemonRig(ctx, 0)
	if err != nil {
		return figures.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	var all []float64
	for range readyRounds {
		start := time.Now()
		if err := d.prepare(ctx, d.claims[0]); err != nil {
			return figures.Reading{}, err
		}
		all = append(all, time.Since(start).Seconds())
		if status := d.supervisor.Status(string(d.claims[0].UID)); !status.Ready { //nolint:contextcheck // it only looks
			return figures.Reading{}, fmt.Errorf("the share is prepared and its daemon is not ready: %+v", status)
		}
		if err := d.unprepare(ctx, d.claims[0]); err != nil {
			return figures.Reading{}, err
		}
	}
	return figures.Reading{Value: figures.Median(all), Seen: fmt.Sprintf("median of %d; it answers and its limits are read back", len(all))}, nil
}

// timeSharers: the lock of the GPU is not held while a daemon comes up, or each
// would wait for those before it.
func (b *bench) timeSharers(ctx context.Context) (reading figures.Reading, err error) {
	d, err := b.newDaemonRig(ctx, slowDaemon)
	if err != nil {
		return figures.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	return allAgainstOne(ctx, d.kubelet, d.claims)
}
