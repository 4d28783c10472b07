package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

const (
	// lookTimeout limits reading the inventory of the GPUs, healthTimeout reading their
	// health. Both are longer than preparing a claim keeps a GPU busy. They are separate,
	// so that a GPU that hangs in the first does not prevent the second for other GPUs.
	lookTimeout   = 30 * time.Second
	healthTimeout = 20 * time.Second
	// foreignTimeout is how long the search for foreign partitions waits for a GPU on which
	// a claim is being prepared.
	foreignTimeout = time.Second
)

// look reads the inventory and the health of the GPUs, and publishes what has changed. It fails
// only if ctx ends. The caller holds looking.
func (m *monitor) look(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l := m.drivers.List(listing)
	if err := ctx.Err(); err != nil {
		// The plugin is stopping, so failures say nothing about GPUs.
		return err
	}
	removed := m.roster.Update(ctx, l.Found, l.Problems, l.Told, m.Machine.BootID())
	m.gpus.Remove(removed)
	for _, address := range removed {
		m.events.Note(ctx, names.EventGPURemoved, fmt.Sprintf("GPU %s, which the node had before it was booted, was removed; profiles do not count it any more", gpu.NameOf(address)))
	}
	maps.Copy(l.Problems, m.expectSilent(ctx, l.Failed))
	m.removeUnoffered(l.Found)
	reshared := m.share(ctx, l.Found)
	maps.Copy(l.Problems, m.problems(ctx, l.Found))
	if err := ctx.Err(); err != nil {
		return err
	}
	changes, publish := m.gpus.Update(l.Found, l.Problems, ledger.Held(m.records.List()))
	for _, c := range changes {
		m.reportChange(ctx, c)
	}
	if publish || reshared || len(removed) > 0 {
		m.publisher.Publish(ctx)
	}
	return nil
}

// lookForForeign finds partitions that Tranche did not create. Devices that overlap them must
// not be allocated.
func (m *monitor) lookForForeign(ctx context.Context) {
	foreign, missing := map[string][]gpu.Partition{}, map[string][]ledger.Device{}
	for _, g := range m.gpus.List() {
		m.finishReleases(ctx, g.PCIAddress)
		partitions, lacking, err := m.foreignOn(ctx, &g)
		if err != nil {
			// The previous answer stays.
			partitions = m.publisher.ForeignOn(g.PCIAddress)
		} else {
			missing[g.PCIAddress] = lacking
		}
		if len(partitions) > 0 {
			foreign[g.PCIAddress] = partitions
		}
	}
	m.noteMissing(ctx, missing)
	m.publisher.SetForeign(ctx, foreign)
}

// finishReleases cleans up a GPU that was lost while claims were released. That happens before
// the GPU is healthy again, which takes several checks.
func (m *monitor) finishReleases(ctx context.Context, pciAddress string) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	m.claims.report(ctx, m.claims.FinishReleases(ctx, pciAddress))
}

// foreignOn lists the foreign partitions of one GPU, and the devices that claims hold and the GPU
// does not have. With RemoveIdleForeign, it removes foreign partitions that nobody uses, unless it is not
// known which ones a profile has.
func (m *monitor) foreignOn(ctx context.Context, g *inventory.GPU) ([]gpu.Partition, []ledger.Device, error) {
	partitions, missing, err := m.compare(ctx, g.PCIAddress)
	if err != nil {
		return nil, nil, err
	}
	var left []gpu.Partition
	for _, f := range partitions {
		if m.RemoveIdleForeign && m.node.IsManaged() && m.applied.Unread() == nil {
			err = m.claims.RemoveForeign(context.WithoutCancel(ctx), f)
			if err == nil {
				m.events.Note(ctx, names.EventForeignPartitionRemoved, fmt.Sprintf("GPU %s held partition %s (%s) that Tranche did not make and nobody used; it was removed, because foreignPartitions is RemoveIdle", g.Name(), f.Name(), f.ID))
				continue
			}
		}
		m.reportForeign(ctx, g, f, err)
		left = append(left, f)
	}
	return left, missing, nil
}

// compare compares the ledger with a GPU.
func (m *monitor) compare(ctx context.Context, pciAddress string) (foreign []gpu.Partition, missing []ledger.Device, err error) {
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	return m.claims.Compare(ctx, pciAddress)
}

// noteMissing records, by GPU, the devices that claims hold and the GPU no longer has. If some are
// new, the GPUs are read again: since the last time, a reload of the driver may have changed what
// a GPU offers, which is then the cause.
func (m *monitor) noteMissing(ctx context.Context, missing map[string][]ledger.Device) {
	gpus := m.gpus.List()
	withNew := slices.DeleteFunc(slices.Clone(gpus), func(g inventory.GPU) bool {
		known := g.Lacks()
		return !slices.ContainsFunc(missing[g.PCIAddress], func(d ledger.Device) bool { return known[d.Name].Reason == "" })
	})
	if len(withNew) > 0 {
		if err := m.look(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot list the GPUs")
		}
	}
	for _, g := range withNew {
		// Meanwhile a claim may have been released, or prepared again.
		if _, again, err := m.compare(ctx, g.PCIAddress); err == nil {
			missing[g.PCIAddress] = again
		}
	}
	var changes []inventory.Change
	for _, g := range gpus {
		if devices, compared := missing[g.PCIAddress]; compared {
			changes = append(changes, m.gpus.SetRemoved(g.PCIAddress, devices)...)
		}
	}
	for _, c := range changes {
		m.reportChange(ctx, c)
	}
	if len(changes) > 0 {
		m.publisher.Publish(ctx)
	}
}

// reportForeign reports a foreign partition once.
func (m *monitor) reportForeign(ctx context.Context, g *inventory.GPU, f gpu.Partition, removal error) {
	for _, known := range m.publisher.ForeignOn(g.PCIAddress) {
		if known == f {
			return
		}
	}
	m.metrics.Finding(names.EventForeignPartition, nil)
	message := fmt.Sprintf("GPU %s holds partition %s (%s) that Tranche did not make. It is left alone, and devices that overlap it are not allocated. To free it, run on the node: %s", g.Name(), f.Name(), f.ID, hardware.Lookup(m.drivers.Of).RemovalCommand(f))
	if removal != nil {
		message += fmt.Sprintf(" (Tranche could not remove it: %v)", removal)
	}
	m.events.Warn(ctx, names.EventForeignPartition, message)
}
