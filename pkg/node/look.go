package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

const (
	// defaultLookInterval is how often the GPUs are checked.
	defaultLookInterval = 5 * time.Second
	// lookTimeout limits reading the inventory of the GPUs, healthTimeout reading their
	// health. Both are longer than preparing a claim keeps a GPU busy. They are separate,
	// so that a GPU that hangs in the first does not prevent the second for other GPUs.
	lookTimeout   = 30 * time.Second
	healthTimeout = 20 * time.Second
	// foreignTimeout is how long the search for foreign partitions waits for a GPU on which
	// a claim is being prepared.
	foreignTimeout = time.Second
)

// watchGPUs checks the GPUs at intervals until ctx ends.
func (p *plugin) watchGPUs(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(p.LookInterval, defaultLookInterval))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.lookAtAll(ctx)
		p.follow.Nudge()
	}
}

// lookAtAll checks the GPUs and the MPS daemons. While the GPUs are being changed, only the
// daemons are checked: a change can take minutes, and checks the GPUs at its end.
func (p *plugin) lookAtAll(ctx context.Context) {
	if p.looking.TryLock() {
		p.lookAtGPUs(ctx)
		p.looking.Unlock()
	}
	p.lookAfterDaemons(ctx)
	p.publisher.ClaimsChanged(ctx)
}

func (p *plugin) lookAtGPUs(ctx context.Context) {
	if err := p.look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the GPUs")
	}
	p.lookForForeign(ctx)
	p.lookForObstacles(ctx)
}

// look reads the inventory and the health of the GPUs, and publishes what has changed. It fails
// only if ctx ends. The caller holds looking.
func (p *plugin) look(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l := p.hardware.List(listing)
	if err := ctx.Err(); err != nil {
		// The plugin is stopping, so failures say nothing about GPUs.
		return err
	}
	maps.Copy(l.Problems, p.expectSilent(ctx, l.Failed))
	for _, address := range p.roster.Update(ctx, l.Found, l.Problems, l.Told, p.Machine.BootID()) {
		p.events.Note(ctx, names.EventGPURemoved, fmt.Sprintf("GPU %s, which the node had before it was booted, was removed; profiles do not count it any more", gpu.NameOf(address)))
	}
	p.removeUnoffered(l.Found)
	reshared := p.share(ctx, l.Found)
	maps.Copy(l.Problems, p.problems(ctx, l.Found))
	if err := ctx.Err(); err != nil {
		return err
	}
	changes, publish := p.gpus.Update(l.Found, l.Problems, p.heldPlacements())
	for _, c := range changes {
		p.tellChange(ctx, c)
	}
	if publish || reshared {
		p.publisher.Publish(ctx)
	}
	return nil
}

// lookForForeign finds partitions that Tranche did not create. Devices that overlap them must
// not be allocated.
func (p *plugin) lookForForeign(ctx context.Context) {
	foreign, missing := map[string][]gpu.Partition{}, map[string][]ledger.Device{}
	for _, g := range p.gpus.List() {
		p.finishReleases(ctx, g.PCIAddress)
		partitions, lacking, err := p.foreignOn(ctx, &g)
		if err != nil {
			// The previous answer stays.
			partitions = p.publisher.ForeignOn(g.PCIAddress)
		} else {
			missing[g.PCIAddress] = lacking
		}
		if len(partitions) > 0 {
			foreign[g.PCIAddress] = partitions
		}
	}
	p.noteMissing(ctx, missing)
	p.publisher.SetForeign(ctx, foreign)
}

// finishReleases cleans up a GPU that was lost while claims were released. That happens before
// the GPU is healthy again, which takes several checks.
func (p *plugin) finishReleases(ctx context.Context, pciAddress string) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	p.report(ctx, p.claims.FinishReleases(ctx, pciAddress))
}

// foreignOn lists the foreign partitions of one GPU, and the devices that claims hold and the GPU
// does not have. With AdoptForeign, it removes foreign partitions that nobody uses.
func (p *plugin) foreignOn(ctx context.Context, g *inventory.GPU) ([]gpu.Partition, []ledger.Device, error) {
	partitions, missing, err := p.compare(ctx, g.PCIAddress)
	if err != nil {
		return nil, nil, err
	}
	var left []gpu.Partition
	for _, f := range partitions {
		if p.AdoptForeign && p.node.IsManaged() {
			err = p.claims.Adopt(context.WithoutCancel(ctx), f)
			if err == nil {
				p.events.Note(ctx, names.EventForeignPartitionRemoved, fmt.Sprintf("GPU %s held partition %s (%s) that Tranche did not make and nobody used; it was removed, because foreignPartitions is set to adopt", g.Name(), f.Name(), f.ID))
				continue
			}
		}
		p.tellForeign(ctx, g, f, err)
		left = append(left, f)
	}
	return left, missing, nil
}

// compare compares the ledger with a GPU.
func (p *plugin) compare(ctx context.Context, pciAddress string) (foreign []gpu.Partition, missing []ledger.Device, err error) {
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	return p.claims.Compare(ctx, pciAddress)
}

// noteMissing records, by GPU, the devices that claims hold and the GPU no longer has. If some are
// new, the GPUs are read again: since the last time, a reload of the driver may have changed what
// a GPU offers, which is then the cause.
func (p *plugin) noteMissing(ctx context.Context, missing map[string][]ledger.Device) {
	gpus := p.gpus.List()
	withNew := slices.DeleteFunc(slices.Clone(gpus), func(g inventory.GPU) bool {
		known := g.Lacks()
		return !slices.ContainsFunc(missing[g.PCIAddress], func(d ledger.Device) bool { return known[d.Name].Reason == "" })
	})
	if len(withNew) > 0 {
		if err := p.look(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot list the GPUs")
		}
	}
	for _, g := range withNew {
		// Meanwhile a claim may have been released, or prepared again.
		if _, again, err := p.compare(ctx, g.PCIAddress); err == nil {
			missing[g.PCIAddress] = again
		}
	}
	var changes []inventory.Change
	for _, g := range gpus {
		if devices, compared := missing[g.PCIAddress]; compared {
			changes = append(changes, p.gpus.SetRemoved(g.PCIAddress, devices)...)
		}
	}
	for _, c := range changes {
		p.tellChange(ctx, c)
	}
	if len(changes) > 0 {
		p.publisher.Publish(ctx)
	}
}

// removalCommand is what a person types on the node to remove a partition; empty if nothing does.
func (p *plugin) removalCommand(f gpu.Partition) string {
	driver, err := p.hardware.Of(f.GPU)
	if err != nil {
		return ""
	}
	return driver.RemovalCommand(f)
}

// tellForeign reports a foreign partition once.
func (p *plugin) tellForeign(ctx context.Context, g *inventory.GPU, f gpu.Partition, adoption error) {
	for _, known := range p.publisher.ForeignOn(g.PCIAddress) {
		if known == f {
			return
		}
	}
	p.metrics.Finding(names.EventForeignPartition, nil)
	message := fmt.Sprintf("GPU %s holds partition %s (%s) that Tranche did not make. It is left alone, and devices that overlap it are not allocated. To free it, run on the node: %s", g.Name(), f.Name(), f.ID, p.removalCommand(f))
	if adoption != nil {
		message += fmt.Sprintf(" (Tranche could not remove it: %v)", adoption)
	}
	p.events.Warn(ctx, names.EventForeignPartition, message)
}
