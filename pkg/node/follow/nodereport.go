package follow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/text"
)

// modesTimeout limits how long a report waits for the modes of a GPU.
const modesTimeout = 2 * time.Second

// nodeReport describes the node for its GPUNode. During a rolling update, that includes the
// claims that another plugin has prepared.
func (f *Follower) nodeReport(ctx context.Context) *v1beta1.NodeReport {
	if err := f.Claims.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the claims that another plugin has prepared on this node, so they are not reported")
	}
	gpus := f.GPUs.List()
	modes := f.modesOf(ctx, gpus)
	// Claims come and go meanwhile, so all parts of the report are of one list.
	records := f.Claims.Ledger.List()
	inUse := ledger.InUse(records)
	report := &v1beta1.NodeReport{
		PluginVersion: versionText(f.Version), ProtocolVersion: v1beta1.ProtocolVersion,
		BootID:       f.Machine.BootID(),
		GPUCount:     int32(len(gpus)),
		ClaimCount:   int32(len(inUse)),
		OtherSystems: f.Publisher.OwnersFound(),
		AppliedHash:  f.Profile.Applied().Hash,

		UnhealthyGPUs: f.unhealthy(gpus), UnpreparedClaims: f.unprepared.list(),
	}
	answered := map[string]gpu.Modes{}
	for i, m := range modes {
		of := f.gpuReport(&gpus[i], m, records, inUse)
		report.GPUs = append(report.GPUs, of)
		if len(of.HeldDevices)+len(of.Problems) == 0 {
			report.FreeGPUCount++
		}
		if m != nil {
			answered[gpus[i].Name()] = *m
		}
	}
	report.InputHash = f.inputHash(answered)
	if f.NoKernelLimits != nil {
		report.KernelLimitsUnavailable = text.Cut(f.NoKernelLimits(), v1beta1.MaxListedText)
	}
	bound(report)
	return report
}

// modesOf reads the modes of GPUs; nil for one that does not answer. It does so in parallel, so that
// several GPUs that hang delay the report only once.
func (f *Follower) modesOf(ctx context.Context, gpus []inventory.GPU) []*gpu.Modes {
	modes := make([]*gpu.Modes, len(gpus))
	var wg sync.WaitGroup
	for i := range gpus {
		wg.Go(func() { modes[i] = f.modesNow(ctx, &gpus[i]) })
	}
	wg.Wait()
	return modes
}

// gpuReport describes a GPU. inUse are the records of claims that are not released.
func (f *Follower) gpuReport(g *inventory.GPU, modes *gpu.Modes, records, inUse []ledger.Record) v1beta1.GPUReport {
	held := heldOf(g, inUse)
	return v1beta1.GPUReport{
		Name: g.Name(), Vendor: string(g.Vendor), ProductName: g.ProductName, Index: int32(g.Index),
		GPUModes:    f.reportedModes(g, modes),
		Partitions:  f.partitionsOf(g, records),
		HeldDevices: held,
		SliceHash:   f.Publisher.DigestOf(g.PCIAddress),
		Problems:    ProblemsOf(g.Problem),
		Pending:     strings.Join(f.pendingOf(g, held), "; "),
	}
}

// ProblemsOf returns why a GPU cannot be used.
func ProblemsOf(p gpu.Problem) []v1beta1.GPUProblem {
	if p.Message == "" {
		return nil
	}
	return []v1beta1.GPUProblem{{Cause: string(cmp.Or(p.Cause, gpu.CauseCheck)), Message: p.Message}}
}

// modesNow reads the modes of a GPU; nil if it does not answer.
func (f *Follower) modesNow(ctx context.Context, g *inventory.GPU) *gpu.Modes {
	ctx, cancel := context.WithTimeout(ctx, modesTimeout)
	defer cancel()
	driver, err := f.Drivers.Of(g.PCIAddress)
	m := gpu.Modes{}
	if err == nil {
		m, err = driver.Modes(ctx, g.PCIAddress)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read the modes of a GPU", "gpu", g.Name(), "err", err)
		return nil
	}
	return &m
}

// reportedModes returns the modes of a GPU. If it does not answer, they are those of the last
// report.
func (f *Follower) reportedModes(g *inventory.GPU, m *gpu.Modes) v1beta1.GPUModes {
	if m == nil {
		return f.modesBefore(g.Name())
	}
	out := v1beta1.GPUModes{ComputePartition: m.Compute, MemoryPartition: m.Memory}
	switch m.MIG {
	case gpu.MIGOn:
		out.MIGMode = v1beta1.MIGModeEnabled
	case gpu.MIGOff:
		out.MIGMode = v1beta1.MIGModeDisabled
	}
	return out
}

func (f *Follower) modesBefore(gpuID string) v1beta1.GPUModes {
	if f.reported != nil {
		for i := range f.reported.GPUs {
			if r := &f.reported.GPUs[i]; r.Name == gpuID {
				return r.GPUModes
			}
		}
	}
	return v1beta1.GPUModes{}
}

// partitionsOf returns the known partitions of a GPU: those of claims, of the profile, and
// foreign ones.
func (f *Follower) partitionsOf(g *inventory.GPU, records []ledger.Record) (all []v1beta1.PartitionReport) {
	profiles := map[string]string{}
	for _, d := range ledger.DevicesOn(records, g.PCIAddress) {
		if base := d.Placement.Base(); base.Type != gpu.TypeGPU {
			profiles[base.Name()] = base.Profile
		}
	}
	for _, p := range f.Profile.Layout(g.PCIAddress).Static {
		profiles[p.Name()] = p.Profile
	}
	for _, p := range f.Publisher.ForeignOn(g.PCIAddress) {
		profiles[p.Name()] = p.Profile
	}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		all = append(all, v1beta1.PartitionReport{Name: name, Profile: profiles[name]})
	}
	return all
}

// heldOf names the devices of a GPU that claims hold.
func heldOf(g *inventory.GPU, inUse []ledger.Record) []string {
	var names []string
	for _, d := range ledger.DevicesOn(inUse, g.PCIAddress) {
		if !d.Admin {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// notRestoredOn says why the profile could not be restored on a GPU; empty if it was.
func (f *Follower) notRestoredOn(pciAddress string) string {
	return strings.Join(lists.Map(partition.OfGPU(f.notRestored, pciAddress), error.Error), "; ")
}

// pendingOf lists the parts of the profile that are not applied yet, and why. held are the devices
// that claims hold.
func (f *Follower) pendingOf(g *inventory.GPU, held []string) []string {
	var pending []string
	if later := f.Sharing.Waiting(g.Name()); later != "" {
		pending = append(pending, "when no claim holds a share of the GPU: "+later)
	}
	switch why := f.notRestoredOn(g.PCIAddress); {
	case why != "":
		pending = append(pending, "the profile could not be restored, which is retried: "+why)
	case f.Profile.Behind(g.PCIAddress) && f.Roster.Lost(g.PCIAddress):
		pending = append(pending, "the profile is applied when the GPU answers again")
	case f.Profile.Behind(g.PCIAddress):
		pending = append(pending, "the profile is not applied yet")
	}
	layout := f.Profile.Layout(g.PCIAddress)
	for _, name := range held {
		if p, ok := g.Placement(name); ok && !layout.Offers(p) {
			pending = append(pending, name+" is no longer offered once its claim is released")
		}
	}
	return pending
}

// report writes the node report, if it has changed: at once during a switch, otherwise at most
// every reportInterval.
func (f *Follower) report(ctx context.Context, state v1beta1.State) {
	busy := state != "" && state != v1beta1.Idle && state != v1beta1.Failed
	tainted := f.reported != nil && f.reported.PublishedTaints != nil
	if !busy && tainted == (f.accepted != nil) && time.Since(f.reportedAt) < reportInterval {
		return
	}
	report := f.nodeReport(ctx)
	report.Task, report.PublishedTaints = f.task, f.accepted
	if apiequality.Semantic.DeepEqual(report, f.reported) {
		return
	}
	if err := writeReport(ctx, f.Nodes, f.Node.Name, report); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the node report, which is retried")
		return
	}
	f.reported, f.reportedAt, f.before = report, time.Now(), nil
}

// writeReport applies status.node of a GPUNode, and no other field.
func writeReport(ctx context.Context, nodes client.GPUNodes, name string, report *v1beta1.NodeReport) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(),
		"kind":       "GPUNode",
		"metadata":   map[string]any{"name": name},
		"status":     map[string]any{"node": report},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	force := true
	_, err = nodes.Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("report in the status of GPUNode %s: %w", name, err)
	}
	return nil
}
