package amd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

const (
	// watchEvery is the time between two looks at all GPUs. A GPU must be out of
	// service 10 s after an error.
	watchEvery = 5 * time.Second
	// watchPatience is how long one look may take.
	watchPatience = 3 * time.Second
)

// WatchHealth reports what becomes wrong with the GPUs that Inventory has reported,
// from now until ctx ends: once for each trouble, and again when another comes or
// the same comes back. The reports come one at a time; report should be quick. It
// returns nil when ctx ends.
//
// The driver announces nothing of what matters here by itself, so the GPUs are
// asked every few seconds. GPUs that do not answer in time are not reported: what
// asks for them otherwise says so.
func (d *Driver) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	w := &watcher{d: d, report: report, said: map[string]string{}}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher is one WatchHealth.
type watcher struct {
	d      *Driver
	report func(gpu.HealthEvent)
	// said is what was last reported of a GPU, as long as it is so.
	said map[string]string
}

// look asks all GPUs at once: one that hangs delays the others by its patience
// and no more.
func (w *watcher) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	gpus := w.d.KnownAddresses()
	found := make([]error, len(gpus))
	var wait sync.WaitGroup
	for i, pciAddress := range gpus {
		wait.Go(func() { found[i] = w.d.CheckHealth(bounded, pciAddress) })
	}
	wait.Wait()
	for i, pciAddress := range gpus {
		w.note(ctx, pciAddress, found[i])
	}
}

// note reports what has not been said.
func (w *watcher) note(ctx context.Context, pciAddress string, err error) {
	var trouble *sysfs.HealthError
	switch {
	case err == nil:
		delete(w.said, pciAddress)
	case !errors.As(err, &trouble):
		w.d.cfg.Logger.V(1).Info("The health of a GPU cannot be told now", "gpu", pciAddress, "reason", err.Error())
	case w.said[pciAddress] != trouble.Problem:
		w.said[pciAddress] = trouble.Problem
		e := gpu.HealthEvent{PCIAddress: pciAddress, Fatal: true, Cause: trouble.Kind, Message: trouble.Error()}
		e.LoadID, _ = w.d.LoadIDWithin(ctx)
		w.report(e)
	}
}
