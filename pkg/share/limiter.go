package share

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hook"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

const (
	// limitTimeout is how long the driver may take to read or set one limit.
	limitTimeout = 3 * time.Second
	// trialInterval is how often it is tried whether the driver limits memory, if it does not.
	trialInterval = time.Minute
	// limitRounding is by how much a driver may round a limit up, in bytes: a large page of a GPU.
	limitRounding = 2 * gpu.MiB
)

// LimiterConfig has what a Limiter works with.
type LimiterConfig struct {
	// Driver returns the driver of a GPU.
	Driver hardware.Lookup
	// LoadID identifies the current load of the driver of a GPU; empty: it is not known.
	LoadID func(pciAddress string) string
	// Records lists the records of the ledger, with those of another plugin on the node.
	Records func(context.Context) []ledger.Record
	// UpdatePods updates the pods in the record of a claim that the kubelet gave to a pod.
	UpdatePods func(context.Context, ledger.ClaimRef, types.UID) error
	// Groups is the folder of the root of all control groups of cgroup v2.
	Groups string
	// OwnPod is the UID of the plugin's pod, in whose control group limits are tried.
	OwnPod types.UID
	// Untested: limits are also offered for GPUs with UntestedLimits.
	Untested bool
	// NoHook says why containers do not get the hook; nil: they do.
	NoHook error

	Events  *telemetry.Events
	Metrics *telemetry.Metrics
}

// Limiter has the kernel driver keep pods to the memory of their shares. The limit is that of the pod's
// control group, so that it holds for all processes of all its containers together, whatever they do.
// A claim that several pods use is divided among them, so that they do not have more together either.
//
// The limit is set before a container starts (Limit). It is lost with the control group and by a reload
// of the driver, after which containers start anew. Check finds whether somebody else has changed it.
type Limiter struct {
	LimiterConfig
	// turn is for one setting of limits at a time: those of several pods depend on each other.
	turn *semaphore.Weighted

	// mu protects the fields below.
	mu sync.Mutex
	// set has the limits that were set.
	set map[of]limitSet
	// trials has the results of trials by GPU.
	trials map[string]trial
	// told has what was reported of a part last.
	told map[of]string
}

// of is a pod on a GPU.
type of struct {
	pod types.UID
	gpu string
}

// limitSet is a limit that was set.
type limitSet struct {
	// asked is what was set, now what the driver has made of it, with what it last counted.
	asked, now gpu.MemoryLimit
	group      string
	loadID     string
}

type trial struct {
	loadID string
	err    error
	again  time.Time
}

// NewLimiter returns a Limiter. It changes nothing yet.
func NewLimiter(c LimiterConfig) *Limiter {
	return &Limiter{LimiterConfig: c, turn: semaphore.NewWeighted(1), set: map[of]limitSet{}, trials: map[string]trial{}, told: map[of]string{}}
}

// part is what a pod may have of the memory of a GPU.
type part struct {
	of
	name, namespace string
	gpu.MemoryLimit
}

func (p part) String() string {
	return fmt.Sprintf("pod %s/%s on GPU %s", p.namespace, p.name, gpu.NameOf(p.gpu))
}

// limitedByKernel reports whether the kernel driver limits the memory of a share.
func limitedByKernel(d ledger.Device) bool {
	return ofWholeGPU(d.Placement) && d.Placement.Share.KernelLimits
}

// partsOf returns what the pods of records may have.
func partsOf(records []ledger.Record) []part {
	var parts []part
	for _, r := range records {
		for _, d := range r.Devices {
			if !limitedByKernel(d) || !r.HandedOut() {
				continue
			}
			for _, pod := range r.Pods {
				p := part{of: of{pod.UID, d.Placement.GPU}, name: pod.Name, namespace: r.Claim.Namespace}
				i := slices.IndexFunc(parts, func(q part) bool { return q.of == p.of })
				if i < 0 {
					i, parts = len(parts), append(parts, p)
				}
				parts[i].Bytes += d.MemoryMost() / int64(len(r.Pods))
				// Elsewhere nobody has more than is guaranteed, or nothing can be guaranteed.
				if d.Placement.Share.Burst() && d.Placement.Isolation != gpu.IsolationUntested {
					parts[i].Guaranteed += d.Amount.Memory / int64(len(r.Pods))
				}
			}
		}
	}
	return parts
}

// Limit limits the memory of the pod of a container that is about to start. The ledger alone says by
// how much.
func (l *Limiter) Limit(ctx context.Context, r hook.Request) error {
	if err := l.turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait until other limits are set: %w", err)
	}
	defer l.turn.Release(1)
	pod, uid := inventory.PodGroup(r.Group)
	if pod == "" {
		return fmt.Errorf("control group %s is in none of a pod, so the memory of its GPU share cannot be limited; is the kubelet's cgroup driver cgroupfs or systemd?", r.Group)
	}
	record, device, parts, err := l.find(ctx, r, uid)
	if err != nil {
		return err
	}
	ofGPU := func(uid types.UID) int {
		return slices.IndexFunc(parts, func(p part) bool { return p.of == of{uid, device.Placement.GPU} })
	}
	if err := l.shrinkOthers(ctx, record, uid, parts, ofGPU); err != nil {
		return err
	}
	mine := ofGPU(uid)
	if mine < 0 || parts[mine].Bytes < 1 {
		return fmt.Errorf("claim %s has no memory of %s for pod %s", record.Claim, device.Name, uid)
	}
	return l.apply(ctx, parts[mine], filepath.Join(l.Groups, pod))
}

// find returns the record of a claim, its device that a pod uses, and what all pods may have.
func (l *Limiter) find(ctx context.Context, r hook.Request, pod types.UID) (record ledger.Record, device ledger.Device, parts []part, err error) {
	for updated := false; ; updated = true {
		records := l.Records(ctx)
		i := slices.IndexFunc(records, func(of ledger.Record) bool { return string(of.Claim.UID) == r.Claim })
		if i < 0 || records[i].State != ledger.Prepared {
			return record, device, nil, fmt.Errorf("claim %s is not prepared on this node", r.Claim)
		}
		record = records[i]
		j := slices.IndexFunc(record.Devices, func(d ledger.Device) bool { return d.Key() == r.Device && limitedByKernel(d) })
		if j < 0 {
			return record, device, nil, fmt.Errorf("claim %s has no share %s with a limit", record.Claim, r.Device)
		}
		if slices.ContainsFunc(record.Pods, func(p ledger.Pod) bool { return p.UID == pod }) {
			return record, record.Devices[j], partsOf(records), nil
		}
		if updated {
			return record, device, nil, fmt.Errorf("claim %s is not reserved for pod %s", record.Claim, pod)
		}
		if err := l.UpdatePods(ctx, record.Claim, pod); err != nil {
			return record, device, nil, fmt.Errorf("find out which pods use claim %s: %w", record.Claim, err)
		}
	}
}

// shrinkOthers lowers the limits of the other pods of a claim. They have more if this pod is new.
func (l *Limiter) shrinkOthers(ctx context.Context, r ledger.Record, own types.UID, parts []part, ofGPU func(types.UID) int) error {
	if len(r.Pods) == 1 {
		return nil
	}
	groups, err := inventory.PodGroups(l.Groups)
	if err != nil {
		return err
	}
	for _, pod := range r.Pods {
		i := ofGPU(pod.UID)
		if pod.UID == own || i < 0 || groups[pod.UID] == "" || l.isSet(parts[i]) {
			continue
		}
		if err := l.apply(ctx, parts[i], groups[pod.UID]); err != nil {
			return fmt.Errorf("%s shares the claim and must have less memory before another pod can start, which is retried: %w", parts[i], err)
		}
	}
	return nil
}

// isSet reports whether a pod is known to have no more than its part.
func (l *Limiter) isSet(p part) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	set, known := l.set[p.of]
	return known && set.asked.Bytes <= p.Bytes && set.loadID == l.LoadID(p.gpu)
}

// apply sets the limit of a pod, and remembers what the driver has made of it.
func (l *Limiter) apply(ctx context.Context, p part, group string) error {
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	driver, err := l.Driver(p.gpu)
	if err != nil {
		return err
	}
	loadID := l.LoadID(p.gpu)
	now, err := setLimit(ctx, driver, p.gpu, group, p.MemoryLimit)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Limited the memory of a pod", "pod", klog.KRef(p.namespace, p.name), "gpu", gpu.NameOf(p.gpu), "bytes", p.Bytes, "guaranteed", p.Guaranteed, "group", group)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set[p.of] = limitSet{p.MemoryLimit, now, group, loadID}
	return nil
}

// Used returns how much memory of a GPU the driver counted against the limit of a pod when that was last
// checked, in bytes. It is false if the pod has no limit there.
func (l *Limiter) Used(pod types.UID, pciAddress string) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set, limited := l.set[of{pod, pciAddress}]
	return set.now.Used, limited
}

// Check compares the limits of all pods with what the driver reports, and sets those that are missing or
// wrong, as after a restart of the plugin.
func (l *Limiter) Check(ctx context.Context) {
	parts := partsOf(l.Records(ctx))
	l.mu.Lock()
	idle := len(parts)+len(l.set) == 0
	l.mu.Unlock()
	if idle {
		return
	}
	groups, err := inventory.PodGroups(l.Groups)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot check the memory limits of shares, which is retried")
		return
	}
	for _, p := range parts {
		if group := groups[p.pod]; group != "" {
			l.report(ctx, p, l.check(ctx, p, group))
		}
	}
	l.forget(ctx, parts, func(o of) bool { return groups[o.pod] == "" })
}

// Released removes the limits of pods whose claims were released. Their control groups still exist, and the
// driver would keep what it guarantees to a group that is removed.
func (l *Limiter) Released(ctx context.Context) {
	l.mu.Lock()
	idle := len(l.set) == 0
	l.mu.Unlock()
	if !idle {
		ctx := context.WithoutCancel(ctx)
		l.forget(ctx, partsOf(l.Records(ctx)), func(of) bool { return false })
	}
}

// check sets a limit that is missing or wrong, and reports one that somebody else has changed.
func (l *Limiter) check(ctx context.Context, p part, group string) error {
	if err := l.turn.Acquire(ctx, 1); err != nil {
		return nil //nolint:nilerr // the plugin is stopping
	}
	defer l.turn.Release(1)
	driver, err := l.Driver(p.gpu)
	if err != nil {
		return nil //nolint:nilerr // reported otherwise
	}
	reading, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	now, err := driver.MemoryLimit(reading, p.gpu, group)
	if err != nil {
		return err
	}
	loadID := l.LoadID(p.gpu)
	l.mu.Lock()
	before := l.set[p.of]
	ours := before.asked == p.MemoryLimit && before.group == group && before.loadID == loadID
	isAsSet := ours && now.Bytes == before.now.Bytes && now.Guaranteed == before.now.Guaranteed
	if isAsSet {
		before.now = now
		l.set[p.of] = before
	}
	l.mu.Unlock()
	if isAsSet {
		return nil
	}
	if err := l.apply(ctx, p, group); err != nil || !ours {
		return err
	}
	found := "removed"
	if now.Bytes > 0 {
		found = fmt.Sprintf("changed to %d MiB", now.Bytes/gpu.MiB)
	}
	l.Metrics.Finding(names.EventShareLimitRestored, nil)
	l.Events.Warn(ctx, names.EventShareLimitRestored, fmt.Sprintf("The memory limit of %s was set again, because the limit was %s; other programs on the node and resets of the GPU do that", p, found))
	return nil
}

// report reports once that a limit cannot be set.
func (l *Limiter) report(ctx context.Context, p part, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	l.mu.Lock()
	before := l.told[p.of]
	l.told[p.of] = text
	l.mu.Unlock()
	if text != "" && before != text {
		l.Metrics.Finding(names.EventShareLimitFailed, err)
		l.Events.Warn(ctx, names.EventShareLimitFailed, fmt.Sprintf("The memory limit of %s, %d MiB, is not in force, which is retried: %s", p, p.Bytes/gpu.MiB, text))
	}
}

// forget removes the limits of pods that have no share any more, or are gone.
func (l *Limiter) forget(ctx context.Context, parts []part, isGone func(of) bool) {
	l.mu.Lock()
	gone := map[of]string{}
	for o, set := range l.set {
		if isGone(o) || !slices.ContainsFunc(parts, func(p part) bool { return p.of == o }) {
			gone[o] = set.group
			delete(l.set, o)
			delete(l.told, o)
		}
	}
	l.mu.Unlock()
	for o, group := range gone {
		driver, err := l.Driver(o.gpu)
		if _, gone := os.Stat(group); err != nil || gone != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, limitTimeout)
		if err := driver.SetMemoryLimit(ctx, o.gpu, group, gpu.MemoryLimit{}); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot remove the limit of a pod, which ends with its control group", "podUID", o.pod, "gpu", gpu.NameOf(o.gpu), "err", err)
		}
		cancel()
	}
}
