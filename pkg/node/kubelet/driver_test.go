package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/nodetest/rig"
)

const small = rig.GPU0 + "-mig-1g-10gb-0"

// answering is a Driver on a simulated machine, and what it tells others. Its hardware answers to
// create and destroy what the test says; nil: it does.
type answering struct {
	*Driver
	rig             *rig.Rig
	create, destroy error
	tainted         bool

	prepared, unprepared, failed, worked []string
	nudged, published                    int
	stopped                              error
}

func (a *answering) Nudge()                 { a.nudged++ }
func (a *answering) Prepared(uid types.UID) { a.prepared = append(a.prepared, string(uid)) }
func (a *answering) Unprepared(c *resourceapi.ResourceClaim, _ error) {
	a.unprepared = append(a.unprepared, string(c.UID))
}
func (a *answering) PublishFailures(context.Context) { a.published++ }
func (a *answering) Worked(_ context.Context, r ledger.Record) {
	a.worked = append(a.worked, string(r.Claim.UID))
}
func (a *answering) Failed(_ context.Context, err error) (tainted bool) {
	a.failed = append(a.failed, err.Error())
	return a.tainted
}

// afterPlan is called when a claim has been planned.
type afterPlan func()

func (f afterPlan) Phase(_, phase string, _ time.Duration, _ error) {
	if phase == names.PhasePlan {
		f()
	}
}

type scripted struct {
	hardware.Driver
	by *answering
}

func (s scripted) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	if s.by.create != nil {
		return gpu.Partition{}, s.by.create
	}
	return s.Driver.Create(ctx, p)
}

func (s scripted) Destroy(ctx context.Context, p gpu.Placement) error {
	if s.by.destroy != nil {
		return s.by.destroy
	}
	return s.Driver.Destroy(ctx, p)
}

func newAnswering(t *testing.T) *answering {
	t.Helper()
	a := &answering{rig: rig.New(t, "H100-80GB")}
	a.rig.Claims.Driver = func(pciAddress string) (hardware.Driver, error) {
		driver, err := a.rig.Drivers.Of(pciAddress)
		return scripted{driver, a}, err
	}
	a.Driver = New(Config{
		Claims: a.rig.Claims, GPUs: a.rig.GPUs, Publisher: a.rig.Publisher, Metrics: a.rig.Metrics, Limiter: share.NewLimiter(share.LimiterConfig{}),
		Status: telemetry.NewClaimStatus(a.rig.API), Follower: a, Failures: a, Stop: func(err error) { a.stopped = err },
	})
	return a
}

// prepares has the kubelet prepare one claim.
func (a *answering) prepares(c *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	a.rig.T.Helper()
	all, err := a.PrepareResourceClaims(a.rig.Context, []*resourceapi.ResourceClaim{c})
	require.NoError(a.rig.T, err)
	require.Len(a.rig.T, all, 1)
	return all[c.UID]
}

func (a *answering) releases(c *resourceapi.ResourceClaim) error {
	a.rig.T.Helper()
	all, err := a.UnprepareResourceClaims(a.rig.Context, []kubeletplugin.NamespacedObject{{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID}})
	require.NoError(a.rig.T, err)
	require.Len(a.rig.T, all, 1)
	return all[c.UID]
}

// The kubelet gets the devices of each claim, and the others what they have to know.
func TestPrepareAndRelease(t *testing.T) {
	t.Parallel()
	a := newAnswering(t)
	a.rig.Publish()
	a.rig.Publisher.SetSwitchTaints(a.rig.Context, publisher.SwitchTaints{Value: "p", GPUs: []string{rig.GPU0}, Withhold: true})
	published := func() bool {
		return slices.ContainsFunc(nodetest.Published(t, a.rig.API), func(d resourceapi.Device) bool { return d.Name == small })
	}
	a.rig.Await("devices are withheld", func() bool { return !published() })
	one, two := nodetest.Allocate(t, a.rig.API, "a", small), nodetest.Allocate(t, a.rig.API, "b", rig.GPU1, "gpu-ffff-00-00-0")
	all, err := a.PrepareResourceClaims(a.rig.Context, []*resourceapi.ResourceClaim{one, two})
	require.NoError(t, err)
	require.NoError(t, all["a"].Err)
	require.Len(t, all["a"].Devices, 1)
	device := all["a"].Devices[0]
	assert.NotEmpty(t, device.Metadata.Attributes)
	device.Metadata = nil
	assert.Equal(t, kubeletplugin.Device{
		Requests: []string{"r0"}, PoolName: names.PoolName(nodetest.NodeName), DeviceName: small, CDIDeviceIDs: []string{cdi.DeviceID("a", small)},
	}, device)
	require.ErrorContains(t, all["b"].Err, "prepare claim team/claim-b: ")
	assert.Empty(t, all["b"].Devices)
	assert.Equal(t, []string{"a"}, a.prepared)
	assert.Equal(t, []string{"a"}, a.worked)
	assert.Len(t, a.failed, 1)
	assert.Empty(t, a.unprepared, "the claim is to blame")
	assert.Equal(t, 1, a.nudged)
	a.rig.Await("what a claim holds stays published", published)
	nodetest.AwaitStatus(t, a.rig.API, one, metav1.ConditionTrue)

	require.NoError(t, a.prepares(one).Err)
	assert.Equal(t, []string{"a"}, a.worked, "it was prepared before")
	assert.Equal(t, []string{small}, a.rig.Partitions())
	require.NoError(t, a.releases(one))
	require.NoError(t, a.releases(one), "it has nothing")
	assert.Empty(t, a.rig.Partitions())
	assert.Len(t, nodetest.Scrape(t, a.rig.Metrics.Handler(), names.MetricClaimOperationDuration+"_count"), 3, "prepared, failed, and released")
	assert.Equal(t, []string{"a", "a", "a", "a"}, a.prepared)
	assert.Equal(t, 4, a.nudged)
	assert.Zero(t, a.published)
	assert.True(t, a.calls.TryLock(), "no call keeps the plugin from its end")
}

// sharer sets up shares that need nothing.
type sharer struct{ claim.Sharer }

func (sharer) Settings(context.Context, gpu.Placement) (*gpu.Settings, error) { return nil, nil }
func (sharer) Join(context.Context, claim.Holder) error                       { return nil }
func (sharer) Serves(ledger.ClaimRef, ledger.Device) string                   { return "" }
func (sharer) Edits(context.Context, claim.Holder) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{}, nil
}

// Who uses a share is told that it has another memory limit than the claim asks for: on the claim if its
// pods are not known. Administrators are told what keeps it from being released.
func TestPrepareAShare(t *testing.T) {
	t.Parallel()
	const name = rig.GPU0 + "-memory-share"
	for kind, regarding := range map[string]string{"Pod": "pod-a", "ResourceClaim": "claim-a"} {
		a := newAnswering(t)
		limited := profile.Default().Sharing
		limited.Limits = true
		a.rig.Claims.Shares, a.rig.Claims.GPUs = sharer{}, func() []gpu.GPU {
			all := a.rig.Roster.All()
			whole, _ := all[0].Placement(rig.GPU0)
			all[0].Placements = append(all[0].Placements, gpu.ShareOf(whole, gpu.ByMemory, limited))
			return all
		}
		c := nodetest.ClaimOf("a", name)
		c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: claimconfig.New(4000).DeviceConfiguration}}
		if kind == "ResourceClaim" {
			c.Status.ReservedFor[0] = resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "training", UID: "group"}
		}
		result := a.prepares(c)
		require.NoError(t, result.Err)
		assert.EqualValues(t, "share-0a", *result.Devices[0].ShareID)
		nodetest.AwaitEventOn(t, a.rig.API, kind, regarding, names.EventShareLimitReduced, "is 2000 MiB, not the 4000 MiB of its configuration")

		newer := filepath.Join(filepath.Dir(a.rig.CDIDir), "claims", "11111111-2222-3333-4444-555555555555.json")
		require.NoError(t, os.WriteFile(newer, []byte(`{"version":99,"minReader":99}`), 0o600))
		a.rig.Records.ReadAgain()
		require.ErrorContains(t, a.releases(c), "a newer version of Tranche has prepared a share of the same GPU")
		nodetest.AwaitEvent(t, a.rig.API, names.EventClaimConflict, "Claim team/claim-a was not released")
	}
}

// What the hardware cannot make is reported by the node, unless that takes too long or is because of a
// process: rollouts stop at it.
func TestClaimThatCannotBePrepared(t *testing.T) {
	t.Parallel()
	const advice = "; this is retried, and until it succeeds, no other pod gets these devices: to have the pod scheduled to others, delete it"
	for name, tt := range map[string]struct {
		create   error
		tainted  bool
		reported []string
	}{
		"hardware":  {errors.New("ECC"), false, []string{"a"}},
		"tainted":   {errors.New("ECC"), true, []string{"a"}},
		"too long":  {context.DeadlineExceeded, false, nil},
		"a process": {gpu.ErrInUse, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnswering(t)
			a.create, a.tainted = tt.create, tt.tainted
			c := nodetest.Allocate(t, a.rig.API, "a", small)
			err := a.prepares(c).Err
			require.ErrorIs(t, err, tt.create)
			if tt.tainted {
				assert.ErrorContains(t, err, advice)
			} else {
				assert.NotContains(t, err.Error(), advice)
			}
			assert.Equal(t, tt.reported, a.unprepared)
			assert.Len(t, a.failed, 1)
			assert.Empty(t, a.worked)
			assert.Contains(t, nodetest.AwaitStatus(t, a.rig.API, c, metav1.ConditionFalse).Conditions[0].Message, tt.create.Error())
			assert.NoError(t, a.stopped)
		})
	}
}

// Only a restart mounts the folder again that was removed on the host.
func TestCDIFolderIsRemoved(t *testing.T) {
	t.Parallel()
	a := newAnswering(t)
	// A folder that is still open is there, without a name, as one that is mounted.
	folder := t.TempDir()
	open, err := os.Open(folder)
	require.NoError(t, err)
	defer open.Close()
	a.rig.Claims.CDI, err = cdi.Open(fmt.Sprintf("/proc/self/fd/%d", open.Fd()))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(folder))
	require.ErrorIs(t, a.prepares(nodetest.Allocate(t, a.rig.API, "a", small)).Err, cdi.ErrDeleted)
	require.ErrorContains(t, a.stopped, "the plugin restarts to mount its CDI folder again: ")
}

// Administrators are told who holds what a claim was given, too; pods that their GPU cannot be released.
func TestEventsOfClaims(t *testing.T) {
	t.Parallel()
	a := newAnswering(t)
	several := nodetest.Allocate(t, a.rig.API, "m", rig.GPU1+"-mig-1g-10gb-0", rig.GPU1+"-mig-1g-10gb-1")
	several.Status.Allocation.Devices.Results[1].Request = "r0"
	require.NoError(t, a.prepares(several).Err)
	nodetest.AwaitEventOn(t, a.rig.API, "Pod", "pod-m", names.EventSeveralMIGPartitions, "has 2 MIG partitions")
	a.prepared = nil
	one, two := nodetest.Allocate(t, a.rig.API, "a", small), nodetest.ClaimOf("b", rig.GPU0)
	two.Namespace = "others"
	require.NoError(t, a.prepares(one).Err)
	ctx, cancel := context.WithCancel(a.rig.Context)
	a.rig.Claims.Observer = afterPlan(cancel) // it does not wait for the release
	all, err := a.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{two})
	require.NoError(t, err)
	require.Error(t, all["b"].Err)
	assert.NotContains(t, all["b"].Err.Error(), "claim-a")
	assert.Contains(t, nodetest.AwaitEvent(t, a.rig.API, names.EventClaimConflict, ""), "claim-a")

	a.destroy = errors.New("no answer")
	require.NoError(t, a.releases(one), "the pod can end")
	told := map[string]bool{}
	a.rig.Await("who is told", func() bool {
		list, err := a.rig.API.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range list.Items {
			if e.Reason == names.EventReleaseNotFinished {
				told[e.Regarding.Kind+" "+e.Regarding.Name] = true
			}
		}
		return len(told) == 2
	})
	assert.Equal(t, map[string]bool{"Node node-a": true, "Pod pod-a": true}, told)
	assert.Equal(t, 1, a.published, "its place is not free")
	assert.Equal(t, []string{"a", "a"}, a.prepared, "it is not one that cannot be prepared")

	require.NoError(t, a.stopped)
	a.HandleError(a.rig.Context, errors.New("the socket is gone"), "serve")
	require.EqualError(t, a.stopped, "serve: the socket is gone")
	a.stopped = nil
	a.HandleError(a.rig.Context, kubeletplugin.ErrRecoverable, "sync")
	require.NoError(t, a.stopped)
}

// The kubelet tells only its log why a claim cannot be released.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	a := newAnswering(t)
	one := nodetest.Allocate(t, a.rig.API, "a", small)
	require.NoError(t, a.prepares(one).Err)
	files, err := filepath.Glob(filepath.Join(a.rig.CDIDir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Remove(files[0]))
	require.NoError(t, os.MkdirAll(filepath.Join(files[0], "in-the-way"), 0o700))
	require.ErrorContains(t, a.releases(one), "release claim team/claim-a: ")
	nodetest.AwaitEventOn(t, a.rig.API, "Pod", "pod-a", names.EventReleaseFailed, "The GPU of claim claim-a cannot be released, which is retried: ")
	assert.Equal(t, []string{"a", "a"}, a.prepared)
}

// The end of the plugin waits for calls of the kubelet.
func TestWaitForCalls(t *testing.T) {
	d := New(Config{})
	d.calls.RLock()
	ended := make(chan struct{})
	go func() { d.WaitForCalls(t.Context()); close(ended) }()
	require.Eventually(t, func() bool {
		if d.calls.TryRLock() {
			d.calls.RUnlock()
			return false
		}
		return true // it waits
	}, nodetest.Patience, nodetest.Tick)
	select {
	case <-ended:
		require.Fail(t, "a call is in progress")
	default:
	}
	d.calls.RUnlock()
	<-ended
}

// The kubelet is told the health at once, and when a daemon dies.
func TestHealthIsWatched(t *testing.T) {
	t.Parallel()
	a := newAnswering(t)
	require.NoError(t, a.prepares(nodetest.Allocate(t, a.rig.API, "a", small)).Err)
	a.Daemons = share.NewDaemons(nil, a.rig.Events)
	a.Daemons.SetServes(func(ledger.ClaimRef, ledger.Device) string { return "daemon" })
	ctx, cancel := context.WithCancel(a.rig.Context)
	reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error)
	go func() { ended <- a.WatchHealthStatus(ctx, reports) }()
	next := func() kubeletplugin.DeviceHealth {
		r := <-reports
		require.Len(t, r.Devices, 1)
		return r.Devices[0]
	}
	assert.Equal(t, kubeletplugin.HealthStatusHealthy, next().Health)
	a.Daemons.Take("daemon", "died")
	got := next()
	assert.Equal(t, []any{kubeletplugin.HealthStatusUnhealthy, DaemonDied}, []any{got.Health, got.Message})
	cancel()
	require.NoError(t, <-ended)
}
