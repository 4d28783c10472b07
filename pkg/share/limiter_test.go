package share_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hook"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// UIDs of pods.
const (
	web   types.UID = "3f0f0d6e-52f4-4c4b-9a0e-6d3b0f2f0a11"
	batch types.UID = "11111111-2222-3333-4444-555555555555"
	own   types.UID = "99999999-2222-3333-4444-555555555555"
)

// limiting is a driver that limits memory, and what it limits.
type limiting struct {
	hardware.Driver
	mu     sync.Mutex
	limits map[string]int64
	// soft is what is guaranteed.
	soft   map[string]int64
	noSoft bool
	used   map[string]int64
	err    error
	tried  int
}

func key(pciAddress, group string) string { return pciAddress + " " + filepath.Base(group) }

func (d *limiting) SetMemoryLimit(_ context.Context, pciAddress, group string, limit gpu.MemoryLimit) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried++
	if d.err != nil {
		return d.err
	}
	if d.used[key(pciAddress, group)] > limit.Bytes && limit.Bytes > 0 {
		return nil // no effect, which the kernel does not tell
	}
	if d.limits[key(pciAddress, group)] = limit.Bytes; limit.Bytes == 0 {
		delete(d.limits, key(pciAddress, group))
	}
	if d.soft[key(pciAddress, group)] = limit.Guaranteed; limit.Guaranteed == 0 || d.noSoft {
		delete(d.soft, key(pciAddress, group))
	}
	return nil
}

func (d *limiting) MemoryLimit(_ context.Context, pciAddress, group string) (gpu.MemoryLimit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return gpu.MemoryLimit{Guaranteed: d.soft[key(pciAddress, group)], Bytes: d.limits[key(pciAddress, group)], Used: d.used[key(pciAddress, group)]}, d.err
}

// limits is a node with a Limiter.
type limits struct {
	*share.Limiter
	t       *testing.T
	driver  *limiting
	records []ledger.Record
	// joins is the pod that the API server adds to the first claim when it is asked.
	joins  types.UID
	loadID string
	events *telemetry.Events
	api    *fake.Clientset
	counts *telemetry.Metrics
}

func newLimits(t *testing.T, change ...func(*share.LimiterConfig)) *limits {
	t.Helper()
	l := &limits{t: t, driver: &limiting{limits: map[string]int64{}, soft: map[string]int64{}, used: map[string]int64{}}, loadID: "load", api: kubefake.New()}
	var err error
	l.events, err = telemetry.OpenEvents(t.Context(), l.api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
	require.NoError(t, err)
	c := share.LimiterConfig{
		Driver:  func(string) (hardware.Driver, error) { return l.driver, nil },
		LoadID:  func(string) string { return l.loadID },
		Records: func(context.Context) []ledger.Record { return l.records },
		UpdatePods: func(_ context.Context, _ ledger.ClaimRef, pod types.UID) error {
			if pod == own && l.joins == "" {
				return errScripted
			}
			if l.joins != "" {
				l.records[0].Pods = append(l.records[0].Pods, ledger.Pod{Name: "late", UID: l.joins})
			}
			return nil
		},
		Groups: t.TempDir(), OwnPod: own, Events: l.events,
	}
	l.counts = telemetry.NewMetrics("node-a", func() []ledger.Record { return l.records })
	c.Metrics = l.counts
	for _, f := range change {
		f(&c)
	}
	l.Limiter = share.NewLimiter(c)
	return l
}

// start makes the group of a container of a pod, and asks for its limit.
func (l *limits) start(claim string, d ledger.Device, pod types.UID, container string) error {
	l.t.Helper()
	group := "/kubepods/pod" + string(pod) + "/" + container
	require.NoError(l.t, os.MkdirAll(filepath.Join(l.Groups, group), 0o750))
	return l.Limit(l.t.Context(), hook.Request{Claim: claim, Device: d.Key(), Group: group})
}

// holds adds a prepared claim of pods.
func (l *limits) holds(uid types.UID, pods []types.UID, devices ...ledger.Device) {
	r := ledger.Record{Claim: ledger.ClaimRef{UID: uid, Namespace: "team", Name: string(uid)}, State: ledger.Prepared, Devices: devices}
	for _, pod := range pods {
		r.Pods = append(r.Pods, ledger.Pod{Name: string(pod[:8]), UID: pod})
	}
	l.records = append(l.records, r)
}

// inForce are the limits in MiB, by GPU and pod.
func (l *limits) inForce() map[string]int64 {
	mib := map[string]int64{}
	for k, bytes := range l.driver.limits {
		mib[k] = bytes >> 20
	}
	return mib
}

// notes waits for events with so many reasons, and returns their notes by reason.
func (l *limits) notes(reasons int) map[string]string {
	l.t.Helper()
	notes := map[string]string{}
	require.Eventually(l.t, func() bool {
		list, err := l.api.EventsV1().Events("").List(l.t.Context(), metav1.ListOptions{})
		for _, e := range list.Items {
			notes[e.Reason] = e.Note
		}
		return assert.NoError(l.t, err) && len(notes) == reasons
	}, 10*time.Second, 10*time.Millisecond)
	return notes
}

const (
	webOn0   = "0000:01:00.0 pod" + string(web)
	batchOn0 = "0000:01:00.0 pod" + string(batch)
)

func TestLimit(t *testing.T) {
	l := newLimits(t)
	first, second := device(0, byKernel, memory(1)), device(0, byKernel, memory(2))
	second.ShareID = "second"
	other := device(1, byKernel, memory(4))
	l.holds("a", []types.UID{web}, first, second, other)
	require.NoError(t, l.start("a", first, web, "init"))
	assert.Equal(t, map[string]int64{webOn0: 3 << 10}, l.inForce(), "two shares of a GPU are added up")
	require.NoError(t, l.start("a", second, web, "main"), "another container of the pod")
	require.NoError(t, l.start("a", other, web, "main"))
	want := map[string]int64{webOn0: 3 << 10, "0000:02:00.0 pod" + string(web): 4 << 10}
	assert.Equal(t, want, l.inForce())
	l.holds("b", []types.UID{web}, first)
	require.NoError(t, l.start("b", first, web, "side"), "another claim of the pod")
	want[webOn0] = 4 << 10
	assert.Equal(t, want, l.inForce())
	l.holds("c", []types.UID{web}, second)
	l.records[2].State = ledger.Preparing
	l.Check(t.Context())
	assert.Equal(t, want, l.inForce(), "no container has what is being prepared")
}

// Where pods can have more than they request, each is guaranteed its request, until its claim is released.
func TestBurst(t *testing.T) {
	l := newLimits(t)
	burst := byKernel
	burst.MaxMemoryLimitPercent = 200
	more, plain := device(0, burst, memory(2)), device(0, burst, memory(1))
	more.MemoryLimit = 4 * gib
	l.holds("a", []types.UID{web}, more)
	l.holds("b", []types.UID{batch}, plain)
	require.NoError(t, l.start("a", more, web, "c"))
	require.NoError(t, l.start("b", plain, batch, "c"))
	assert.Equal(t, map[string]int64{webOn0: 4 << 10, batchOn0: 1 << 10}, l.inForce())
	assert.Equal(t, map[string]int64{webOn0: 2 * gib, batchOn0: gib}, l.driver.soft)

	l.driver.noSoft = true
	require.ErrorContains(t, l.start("a", more, web, "c"), "was guaranteed 2048 MiB of memory, and the driver reports 0 MiB")
	untested := more
	untested.Placement.Isolation = gpu.IsolationUntested
	l.records[0].Devices[0] = untested
	require.NoError(t, l.start("a", untested, web, "c"), "limits that were never tried guarantee nothing")
	l.records[0].Devices[0], l.driver.noSoft = more, false
	require.NoError(t, l.start("a", more, web, "c"))

	delete(l.driver.soft, webOn0)
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 2 * gib, batchOn0: gib}, l.driver.soft, "set again")
	l.joins = own
	require.NoError(t, l.start("a", more, own, "c"))
	assert.EqualValues(t, gib, l.driver.soft[webOn0], "divided among the pods of the claim")
	assert.EqualValues(t, 2*gib, l.driver.limits[webOn0])

	l.records = l.records[1:]
	l.Released(t.Context())
	assert.Equal(t, map[string]int64{batchOn0: gib}, l.driver.soft, "while the control group exists")
	assert.Equal(t, map[string]int64{batchOn0: 1 << 10}, l.inForce())
	l.records = nil
	l.Released(t.Context())
	assert.Empty(t, l.driver.soft)
	tried := l.driver.tried
	l.Released(t.Context())
	assert.Equal(t, tried, l.driver.tried)
}

// Nothing but the ledger says who may have what.
func TestLimitRefuses(t *testing.T) {
	released := device(5, byKernel, memory(1))
	d, plainShare, nothing := device(0, byKernel, memory(1)), device(1, plain, memory(1)), device(4, byKernel, memory(0))
	for name, tt := range map[string]struct {
		claim  string
		device ledger.Device
		pod    types.UID
		err    string
	}{
		"no such claim":       {"x", d, web, "claim x is not prepared on this node"},
		"not prepared yet":    {"b", d, web, "claim b is not prepared on this node"},
		"another device":      {"a", device(3, byKernel, memory(1)), web, "claim team/a has no share"},
		"a share without":     {"a", plainShare, web, "claim team/a has no share"},
		"another pod":         {"a", d, batch, "claim team/a is not reserved for pod " + string(batch)},
		"a group of no pod":   {"a", d, "x", "is in none of a pod"},
		"driver without call": {"a", d, web, "scripted failure"},
		"no driver":           {"a", d, web, errNoDriver.Error()},
		"a released claim":    {"r", released, web, "claim team/r has no memory of " + released.Name + " for pod " + string(web)},
		"no memory":           {"n", nothing, web, "claim team/n has no memory of"},
		"pods are not known":  {"a", d, own, "find out which pods use claim team/a: scripted failure"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t)
			l.holds("a", []types.UID{web}, d, plainShare)
			l.holds("b", []types.UID{web}, d)
			l.holds("r", []types.UID{web}, released)
			l.holds("n", []types.UID{web}, nothing)
			l.records[1].State, l.records[2].Released = ledger.Preparing, true
			switch name {
			case "driver without call":
				l.driver.err = errScripted
			case "no driver":
				l.Driver = noDriver
			}
			require.ErrorContains(t, l.start(tt.claim, tt.device, tt.pod, "c"), tt.err)
			assert.Empty(t, l.inForce())
		})
	}
}

// All pods of a claim together have no more than the claim.
func TestPodsShareAClaim(t *testing.T) {
	l := newLimits(t)
	d := device(0, byKernel, memory(4))
	l.holds("a", []types.UID{web}, d)
	require.NoError(t, l.start("a", d, web, "c"))
	assert.Equal(t, map[string]int64{webOn0: 4 << 10}, l.inForce())

	l.joins = batch
	l.driver.used[webOn0] = 3 * gib
	err := l.start("a", d, batch, "c")
	require.ErrorContains(t, err, "pod team/3f0f0d6e on GPU gpu-0000-01-00-0 shares the claim and must have less memory before another pod can start, which is retried: GPU gpu-0000-01-00-0: the memory of control group "+filepath.Join(l.Groups, "kubepods/pod"+string(web))+" was limited to 2048 MiB, and the driver reports a limit of 4096 MiB: does the group use 3072 MiB already?")
	assert.Equal(t, map[string]int64{webOn0: 4 << 10}, l.inForce())
	l.driver.used[webOn0] = 2 * gib
	require.NoError(t, l.start("a", d, batch, "c"))
	assert.Equal(t, map[string]int64{webOn0: 2 << 10, batchOn0: 2 << 10}, l.inForce())

	// After a restart, the plugin does not know what is in force.
	again := newLimits(t, func(c *share.LimiterConfig) { c.Groups = l.Groups })
	again.records, again.driver = l.records, l.driver
	l.driver.limits[webOn0] = 4 * gib
	require.NoError(t, again.start("a", d, batch, "c"))
	assert.Equal(t, map[string]int64{webOn0: 2 << 10, batchOn0: 2 << 10}, l.inForce())

	// After a reload of the driver, no limit is in force. A pod that has not started needs none.
	again.loadID, again.records[0].Pods = "another", append(again.records[0].Pods, ledger.Pod{UID: own}, ledger.Pod{UID: "late"})
	l.driver.used, l.driver.limits = nil, map[string]int64{}
	require.NoError(t, again.start("a", d, batch, "c"))
	assert.Equal(t, map[string]int64{webOn0: 1 << 10, batchOn0: 1 << 10}, again.inForce())

	again.Groups = filepath.Join(again.Groups, "none")
	require.ErrorContains(t, again.Limit(t.Context(), hook.Request{Claim: "a", Device: d.Key(), Group: "/kubepods/pod" + string(web) + "/c"}), "look for the control groups of pods")
	ctx, end := context.WithCancel(t.Context())
	end()
	require.ErrorContains(t, again.Limit(ctx, hook.Request{}), "wait until other limits are set")
}

// What others remove is set again and reported; a plugin that starts sets all.
func TestCheckOfLimits(t *testing.T) {
	l := newLimits(t)
	d := device(0, byKernel, memory(4))
	l.Check(t.Context())
	l.holds("a", []types.UID{web, batch}, d)
	require.NoError(t, os.MkdirAll(filepath.Join(l.Groups, "kubepods/pod"+string(web)), 0o750))
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 2 << 10}, l.inForce(), "before the first start of a container, as after a restart of the plugin")
	l.driver.tried = 0
	l.Check(t.Context())
	assert.Zero(t, l.driver.tried, "it is in force")
	l.driver.used = map[string]int64{webOn0: gib}
	l.Check(t.Context())
	used, limited := l.Used(web, "0000:01:00.0")
	assert.True(t, limited)
	assert.Equal(t, int64(gib), used)
	_, limited = l.Used(batch, "0000:01:00.0")
	assert.False(t, limited, "its control group does not exist yet")

	delete(l.driver.limits, webOn0)
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 2 << 10}, l.inForce())
	l.driver.err = errScripted
	l.Check(t.Context())
	l.Check(t.Context())
	l.driver.err = nil
	l.driver.limits, l.loadID = map[string]int64{}, "another"
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 2 << 10}, l.inForce(), "the driver was reloaded")
	assert.Equal(t, map[string]string{
		"ShareLimitRestored": "The memory limit of pod team/3f0f0d6e on GPU gpu-0000-01-00-0 was set again, because the limit was removed; other programs on the node and resets of the GPU do that",
		"ShareLimitFailed":   "The memory limit of pod team/3f0f0d6e on GPU gpu-0000-01-00-0, 2048 MiB, is not in force, which is retried: scripted failure",
	}, l.notes(2))
	assert.Equal(t, []string{
		names.MetricReconcileFindings + `{node="node-a",reason="ShareLimitFailed",result="Failed"} 1`,
		names.MetricReconcileFindings + `{node="node-a",reason="ShareLimitRestored",result="Succeeded"} 1`,
	}, nodetest.Scrape(t, l.counts.Handler(), names.MetricReconcileFindings))

	l.records[0].Pods = l.records[0].Pods[:1]
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 4 << 10}, l.inForce(), "the other pod has ended")
	groups := l.Groups
	l.Groups = filepath.Join(groups, "none")
	l.Check(t.Context())
	assert.Len(t, l.inForce(), 1, "it is not known which pods are gone")
	l.Groups, l.driver.limits[webOn0] = groups, gib
	ctx, end := context.WithCancel(t.Context())
	end()
	l.Check(ctx)
	l.Driver = noDriver
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 1 << 10}, l.inForce(), "the plugin is stopping, or has no driver")

	l.Driver = func(string) (hardware.Driver, error) { return l.driver, nil }
	l.records = nil
	l.Check(t.Context())
	assert.Empty(t, l.inForce(), "the claim was released")
}

func TestLimitThatSomebodyChanged(t *testing.T) {
	l := newLimits(t)
	l.holds("a", []types.UID{web}, device(0, byKernel, memory(4)))
	require.NoError(t, os.MkdirAll(filepath.Join(l.Groups, "kubepods/pod"+string(web)), 0o750))
	l.Check(t.Context())
	l.driver.limits[webOn0] = gib
	l.Check(t.Context())
	assert.Equal(t, map[string]int64{webOn0: 4 << 10}, l.inForce())
	assert.Contains(t, l.notes(1)["ShareLimitRestored"], "was set again, because the limit was changed to 1024 MiB; ")
}

// A limit that is missing and cannot be set is reported with what is wrong, until it is in force.
func TestLimitIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*limits)
		why    string
	}{
		"a pod that uses more": {func(l *limits) { l.driver.used[webOn0] = 5 * gib }, "does the group use 5120 MiB already?"},
		"a driver that fails":  {func(l *limits) { l.driver.err = errScripted }, "scripted failure"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t)
			l.holds("a", []types.UID{web}, device(0, byKernel, memory(4)))
			require.NoError(t, os.MkdirAll(filepath.Join(l.Groups, "kubepods/pod"+string(web)), 0o750))
			tt.change(l)
			l.Check(t.Context())
			note := l.notes(1)["ShareLimitFailed"]
			assert.Contains(t, note, "The memory limit of pod team/3f0f0d6e on GPU gpu-0000-01-00-0, 4096 MiB, is not in force, which is retried: ")
			assert.Contains(t, note, tt.why)
			_, limited := l.Used(web, "0000:01:00.0")
			assert.False(t, limited)
			l.driver.err, l.driver.used[webOn0] = nil, gib
			l.Check(t.Context())
			assert.Equal(t, map[string]int64{webOn0: 4 << 10}, l.inForce())
		})
	}
}
