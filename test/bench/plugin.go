package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

const (
	// pluginInventory is what the plugin's program runs on.
	pluginInventory = "h200x8"
	// slicesOfAGPU, and another one with the counters of all GPUs.
	slicesOfAGPU = 1
	claimRounds  = 3
	// settled is how long to listen for writes that should not come.
	settled = 3 * time.Second

	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	claimsPath = "/apis/resource.k8s.io/v1/resourceclaims"
)

// pluginRun is what one run through the life of the program found.
type pluginRun struct {
	replaced, replacedByShare, memory, restart, change figures.Reading
	// noClaims says why no claim could be prepared, noShares why none for shares.
	noClaims, noShares error
}

// errNotRoot: without root the simulated driver has no device nodes for
// containers.
var errNotRoot = errors.New("only root can make the simulated GPUs' device nodes")

// pluginFigures are of the real program, between a kubelet and an API server.
func (b *bench) pluginFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (*pluginRun, error) { return b.runPlugin(ctx) })
	figure := func(name string, limit figures.Limit, pick func(*pluginRun) (figures.Reading, error)) figures.Figure {
		return figures.Figure{Name: name, Limit: limit, Measure: func(context.Context) (figures.Reading, error) {
			r, err := run()
			if err != nil {
				return figures.Reading{}, err
			}
			return pick(r)
		}}
	}
	return []figures.Figure{
		figure("file replacements in Prepare + Unprepare of a MIG claim", figures.AtMost(6, "files"), func(r *pluginRun) (figures.Reading, error) { return r.replaced, r.noClaims }),
		figure("file replacements in Prepare + Unprepare of a share with a daemon", figures.AtMost(6, "files"), func(r *pluginRun) (figures.Reading, error) {
			return r.replacedByShare, errors.Join(r.noClaims, r.noShares)
		}),
		figure("anonymous memory of the plugin with 8 H200, shared, and 8 MPS daemons", figures.AtMost(30, "MB"), func(r *pluginRun) (figures.Reading, error) { return r.memory, errors.Join(r.noClaims, r.noShares) }),
		figure("ResourceSlice writes at a restart on unchanged hardware", figures.AtMost(0, "writes"), func(r *pluginRun) (figures.Reading, error) { return r.restart, nil }),
		figure("ResourceSlice writes when one GPU changes", figures.AtMost(1, "writes"), func(r *pluginRun) (figures.Reading, error) { return r.change, nil }),
	}
}

func (b *bench) runPlugin(ctx context.Context) (r *pluginRun, err error) {
	h, err := b.newHost(ctx)
	if err != nil {
		return nil, err
	}
	defer h.api.stop()
	// What went wrong may have left some.
	defer func() { err = errors.Join(err, stopDaemons(ctx, h.daemons())) }()
	inv, err := models.LoadInventory(pluginInventory)
	if err != nil {
		return nil, err
	}
	r = &pluginRun{}
	if err := h.firstRun(ctx, r, len(inv.GPUs)); err != nil {
		return nil, err
	}
	return r, h.secondRun(ctx, r, inv.GPUs[0].PCI)
}

// firstRun publishes, prepares and releases claims on all GPUs.
func (h *host) firstRun(ctx context.Context, r *pluginRun, gpus int) error {
	p, err := h.start(ctx)
	if err != nil {
		return err
	}
	defer p.stop() //nolint:errcheck // the second run would not start
	if err := p.await(ctx, "publish", func() bool { return h.api.count(slicesPath) == 1+gpus*slicesOfAGPU }); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		r.noClaims = errNotRoot
		return nil
	}
	published, err := p.memory()
	if err != nil {
		return err
	}
	partitions, shares, err := h.claims()
	if err != nil {
		return err
	}
	if r.replaced, err = h.countReplaced(ctx, p.kubelet, partitions[0]); err != nil {
		return err
	}
	for range claimRounds {
		if _, err := prepareAll(ctx, p.kubelet, partitions); err != nil {
			return err
		}
	}
	if r.replacedByShare, r.noShares = h.countReplaced(ctx, p.kubelet, shares[0]); r.noShares == nil {
		r.noShares = h.holdShares(ctx, p, r, shares, published)
	}
	return nil
}

// holdShares reads the memory of the program while it has shares of all GPUs given
// out, each with a daemon.
func (h *host) holdShares(ctx context.Context, p *process, r *pluginRun, shares []*resourceapi.ResourceClaim, published map[string]float64) error {
	if err := atOnce(shares, func(c *resourceapi.ResourceClaim) error { return p.prepare(ctx, c) }); err != nil {
		return err
	}
	daemons, err := h.daemons().List()
	if err != nil {
		return err
	}
	if len(daemons) != len(shares) {
		return fmt.Errorf("%d shares have %d MPS daemons", len(shares), len(daemons))
	}
	now, err := p.memory()
	if err != nil {
		return err
	}
	const mb = 1e6
	// The pages of the program's file, RssFile, come and go as the kernel likes.
	r.memory = figures.Reading{
		Value: max(published["RssAnon"], now["RssAnon"]) / mb,
		Seen:  fmt.Sprintf("%.1f after publishing; beside it %.1f of the program's file", published["RssAnon"]/mb, now["RssFile"]/mb),
	}
	return atOnce(shares, func(c *resourceapi.ResourceClaim) error { return p.unprepare(ctx, c) })
}

// claims are one claim for each GPU, for a partition and for a share, as they are
// in the API server.
func (h *host) claims() (partitions, shares []*resourceapi.ResourceClaim, err error) {
	h.api.mu.Lock()
	var devices []string
	for _, s := range h.api.list(slicesPath, metav1.ListOptions{}) {
		if found, ok, _ := unstructured.NestedSlice(s.Object, "spec", "devices"); ok && len(found) > 0 {
			if first, ok := found[0].(map[string]any); ok {
				devices = append(devices, fmt.Sprint(first["name"]))
			}
		}
	}
	h.api.mu.Unlock()
	slices.Sort(devices)
	for i, device := range devices {
		gpuID, _, _ := strings.Cut(device, "-mig-")
		partition, share := claimFor(i, device), shareClaimFor(len(devices)+i, gpuID)
		if err := errors.Join(h.api.put(claimsPath, partition), h.api.put(claimsPath, share)); err != nil {
			return nil, nil, err
		}
		partitions, shares = append(partitions, partition), append(shares, share)
	}
	return partitions, shares, nil
}

// countReplaced counts the files that one pair replaces, in the plugin's folder
// and in the one for CDI files.
func (h *host) countReplaced(ctx context.Context, k *kubelet, c *resourceapi.ResourceClaim) (figures.Reading, error) {
	watch, err := watchReplaced(h.dataDir(), h.path("cdi"))
	if err != nil {
		return figures.Reading{}, err
	}
	defer watch.close() //nolint:errcheck // only read
	if err := k.prepare(ctx, c); err != nil {
		return figures.Reading{}, err
	}
	names, err := watch.names()
	if err != nil {
		return figures.Reading{}, err
	}
	if err := k.unprepare(ctx, c); err != nil {
		return figures.Reading{}, err
	}
	more, err := watch.names()
	if err != nil {
		return figures.Reading{}, err
	}
	seen := ""
	for _, name := range append(names, more...) {
		seen += " " + filepath.Base(filepath.Dir(name))
	}
	return figures.Reading{Value: float64(len(names) + len(more)), Seen: "in" + seen}, nil
}

// secondRun starts the program again, and then takes a GPU off the bus.
func (h *host) secondRun(ctx context.Context, r *pluginRun, gpuID string) error {
	before := h.api.written()
	p, err := h.start(ctx)
	if err != nil {
		return err
	}
	defer p.stop() //nolint:errcheck // nothing comes after it
	if err := sleep.For(ctx, settled); err != nil {
		return err
	}
	restarted := h.api.written()
	if err := nvdriver.SetFaults(h.simulation(), nvdriver.Faults{Lost: []string{gpuID}}); err != nil {
		return err
	}
	// Whatever the restart was late to write is written with it, and counted.
	err = p.await(ctx, "publish the change of "+gpu.NameOf(gpuID), func() bool { return h.api.written() > restarted })
	if err != nil {
		return err
	}
	if err := sleep.For(ctx, settled); err != nil {
		return err
	}
	changed := h.api.written()
	r.restart = figures.Reading{Value: float64(restarted - before), Seen: fmt.Sprintf("%d to publish at first", before)}
	r.change = figures.Reading{Value: float64(changed - restarted), Seen: "a GPU falls off the bus"}
	return nil
}
