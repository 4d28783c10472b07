package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/figures"
)

// prepared is how many claims are prepared while the time of one more is taken.
var prepared = []int{1, 50, 500}

const (
	// preparePairs are measured for each number of claims.
	preparePairs = 100
	// replacements of a file are what a pair is held against.
	replacements    = 6
	replacementSize = 2 << 10
	// gpusForClaims have room for the claims, seven on each.
	gpusForClaims = 80
)

// prepareTimes are the times of each pair by number of prepared claims.
type prepareTimes struct {
	pair, files map[int][]float64
}

// prepareFigures: the own time of Prepare and Unprepare of a MIG claim, against
// replacing a file in the same folder as carefully as the ledger does.
func (b *bench) prepareFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (*prepareTimes, error) { return b.timePrepare(ctx) })
	var all []figures.Figure
	for _, n := range prepared {
		all = append(all, figures.Figure{
			Name:    fmt.Sprintf("Prepare + Unprepare at %d prepared, against %d file replacements", n, replacements),
			Limit:   figures.AtMost(3, "×"),
			Measure: figures.From(run, func(t *prepareTimes) figures.Reading { return against(t.pair[n], t.files[n]) }),
		})
	}
	few, many := prepared[0], prepared[len(prepared)-1]
	return append(all, figures.Figure{
		Name:    fmt.Sprintf("Prepare + Unprepare at %d prepared, against at %d", many, few),
		Limit:   figures.AtMost(1.3, "×"),
		Measure: figures.From(run, func(t *prepareTimes) figures.Reading { return against(t.pair[many], t.pair[few]) }),
	})
}

// against is the median of the ratios of times that were taken side by side.
func against(times, others []float64) figures.Reading {
	ratios := make([]float64, len(times))
	for i := range times {
		ratios[i] = times[i] / others[i]
	}
	return figures.Reading{
		Value: figures.Median(ratios),
		Seen:  fmt.Sprintf("%s against %s, median of %d", duration(figures.Median(times)), duration(figures.Median(others)), len(times)),
	}
}

// duration prints seconds with three digits.
func duration(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// timePrepare measures all numbers of claims in turns, and the files beside
// each.
func (b *bench) timePrepare(ctx context.Context) (*prepareTimes, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return nil, err
	}
	gpus = manyGPUs(gpus[0], gpusForClaims)
	rigs := map[int]*rig{}
	for _, n := range prepared {
		r, err := b.rigWith(ctx, &memory{gpus: gpus}, n)
		if err != nil {
			return nil, fmt.Errorf("prepare %d claims: %w", n, err)
		}
		defer r.stop()
		rigs[n] = r
	}
	var measures []func() (float64, error)
	for _, n := range prepared {
		measures = append(measures, rigs[n].timeFiles, func() (float64, error) { return rigs[n].timePair(ctx) })
	}
	times, err := inTurns(preparePairs, measures...)
	if err != nil {
		return nil, err
	}
	t := &prepareTimes{pair: map[int][]float64{}, files: map[int][]float64{}}
	for i, n := range prepared {
		t.files[n], t.pair[n] = times[2*i], times[2*i+1]
	}
	return t, nil
}

// inTurns takes several times side by side, first in one order and then in the other, so that
// whatever else the machine does and what one leaves for the next hit all alike: of each so many.
// One turn before them warms up.
func inTurns(turns int, measures ...func() (seconds float64, err error)) ([][]float64, error) {
	times := make([][]float64, len(measures))
	for turn := range turns + 1 {
		for i := range measures {
			if turn%2 == 1 {
				i = len(measures) - 1 - i
			}
			seconds, err := measures[i]()
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				times[i] = append(times[i], seconds)
			}
		}
	}
	return times, nil
}

// rigWith is a plugin with so many claims prepared, the claim that is measured
// among them. It shares its GPU with others.
func (b *bench) rigWith(ctx context.Context, hardware *memory, claims int) (*rig, error) {
	var all []*resourceapi.ResourceClaim
	for _, g := range hardware.gpus {
		for _, p := range g.Placements {
			if p.Type == gpu.TypeGPU || p.Profile != g.Placements[0].Profile {
				break
			}
			all = append(all, claimFor(len(all), p.Name()))
		}
	}
	if len(all) < claims {
		return nil, fmt.Errorf("the GPUs have room for %d only", len(all))
	}
	return b.rigFor(ctx, hardware, all[:claims])
}

// rigFor is a plugin that knows some claims and has prepared them, but for the
// first: that is prepared by the measurement.
func (b *bench) rigFor(ctx context.Context, hardware *memory, claims []*resourceapi.ResourceClaim) (*rig, error) {
	r, err := b.newRig(ctx, hardware)
	if err != nil {
		return nil, err
	}
	for n, c := range claims {
		err := r.allocate(c)
		if err == nil && n > 0 {
			err = r.prepare(ctx, c)
		}
		if err != nil {
			r.stop()
			return nil, err
		}
	}
	return r, nil
}

// timePair prepares and releases the claim that is measured.
func (r *rig) timePair(ctx context.Context) (seconds float64, err error) {
	r.api.ClearActions() // the fake API server keeps them all
	c, err := r.api.ResourceV1().ResourceClaims("team").Get(ctx, "claim-0", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := r.prepare(ctx, c); err != nil {
		return 0, err
	}
	if err := r.unprepare(ctx, c); err != nil {
		return 0, err
	}
	return time.Since(start).Seconds(), nil
}

// cpuOfPair is the CPU time of the process while it prepares and releases the claim. What the disk
// takes for files, most of the time by far, is not in it, nor what it does for others.
func (r *rig) cpuOfPair(ctx context.Context) (seconds float64, err error) {
	before, err := cpuTime()
	if err != nil {
		return 0, err
	}
	if _, err := r.timePair(ctx); err != nil {
		return 0, err
	}
	after, err := cpuTime()
	return (after - before).Seconds(), err
}

// cpuTime is what the process has had.
func cpuTime() (time.Duration, error) {
	var spec unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &spec)
	return time.Duration(spec.Nano()), err
}

// timeFiles replaces a file in the ledger's folder, so that it survives a power
// cut. Its name is none that the ledger reads.
func (r *rig) timeFiles() (seconds float64, err error) {
	path, data := filepath.Join(r.records, "replaced"), bytes.Repeat([]byte("x"), replacementSize)
	start := time.Now()
	for range replacements {
		if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(r.records)); err != nil {
			return 0, err
		}
		if err := syncFolder(r.records); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds(), nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
