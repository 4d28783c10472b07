package waiting

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	poddemand "github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/allocator"
)

// asks creates a pod and its claim for devices.
func (w *world) asks(name string, d resourceapi.DeviceClaim) types.NamespacedName {
	w.t.Helper()
	c := allocator.Claim(name + "-gpu")
	c.Namespace, c.UID, c.Spec.Devices = "team-a", types.UID("uid-"+name), d
	w.create(c)
	return w.pod(name, name+"-gpu")
}

// Of two pods that ask for the same, one gets the device: the others hear that it is held.
func TestAPodOfADemandIsScheduled(t *testing.T) {
	w := newWorld(t, 1)
	first, second := w.waiting("p-0", wholeGPU), w.waiting("p-1", wholeGPU)
	w.explained()
	require.Empty(t, w.events())

	var claim resourceapi.ResourceClaim
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "p-0-gpu"}, &claim))
	grant, err := w.scheduler.Allocate(t.Context(), "node-0", &claim)
	require.NoError(t, err)
	claim.Status.Allocation = &grant.Result
	require.NoError(t, w.api.Status().Update(t.Context(), &claim))
	var pod corev1.Pod
	require.NoError(t, w.api.Get(t.Context(), first, &pod))
	pod.Spec.NodeName = "node-0"
	require.NoError(t, w.api.Update(t.Context(), &pod))
	w.round("node-0")
	third := w.waiting("p-2", wholeGPU)
	w.explained()
	require.Len(t, w.events(), 2)
	for i, p := range []types.NamespacedName{second, third} {
		assert.Contains(t, w.events()[i], "DevicesHeld "+p.String())
	}
	require.Equal(t, map[string]int{names.EventDevicesHeld: 2}, w.byReason())
}

// What takes the allocator long is backed off and gets no event. The others are judged.
func TestADemandThatTakesLong(t *testing.T) {
	w := newWorld(t, 0)
	w.node("big", 8)
	w.asks("slow", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{allocator.Request("a", small, 16), allocator.Request("b", wholeGPU, 7)}})
	w.waiting("other", "gpu-mig-1g-35gb.tranche.dev")
	w.e.budget.node = 400 * time.Millisecond
	w.explained()
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "NoSuchDevice team-a/other: ")
	require.Equal(t, map[string]int{names.UnexplainedTooLong: 1, names.UnexplainedTooMany: 0}, w.unexplained())
	require.Equal(t, map[string]int{names.EventNoSuchDevice: 1}, w.byReason())

	// It is not judged until the time is over, which is longer each time.
	for _, minutes := range []time.Duration{1, 2} {
		w.pass(minutes*time.Minute - time.Second)
		w.calls = 0
		w.round("big")
		require.Equal(t, 1, w.calls, "the node is read for the other pod")
		w.pass(time.Second)
		w.round()
		require.Equal(t, 2, w.calls)
		require.Equal(t, map[string]int{names.UnexplainedTooLong: 1, names.UnexplainedTooMany: 0}, w.unexplained())
	}
}

// A controller that is starved of time backs off what it would answer at once otherwise.
func TestADemandIsAnsweredAfterItsBackoff(t *testing.T) {
	w := newWorld(t, 0)
	w.node("big", 1)
	usual := w.e.budget
	w.e.budget = budget{node: time.Nanosecond}
	w.waiting("pod", "gpu-mig-1g-35gb.tranche.dev")
	w.explained()
	require.Equal(t, map[string]int{names.UnexplainedTooLong: 1, names.UnexplainedTooMany: 0}, w.unexplained())
	require.Empty(t, w.events())
	w.e.budget = usual
	w.pass(firstBackoff)
	w.round()
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "NoSuchDevice team-a/pod: ")
}

// Judging may take little time on average. The backoff doubles up to its maximum.
func TestBudget(t *testing.T) {
	w := newWorld(t, 0)
	w.e.budget = defaultBudget
	for _, test := range []struct {
		spent, last time.Duration
		judged      int
		want        bool
	}{
		{spent: time.Second, judged: 1},
		{spent: 6 * time.Second, judged: 5, want: true},
		{spent: 250 * time.Second, judged: 5000},
		{spent: 260 * time.Second, judged: 5000, want: true},
		{last: defaultBudget.node, want: true},
		{spent: 4900 * time.Millisecond, last: 900 * time.Millisecond, want: true},
	} {
		d := &demand{spent: test.spent, judged: test.judged, reason: names.EventDevicesHeld, room: &node{}, roomSince: w.clock.Now(), outcomes: []*fit.Outcome{{}}}
		w.e.took(d, test.last)
		assert.Equal(t, test.want, !d.retryAt.IsZero(), "%+v", test)
		if test.want {
			assert.Equal(t, &demand{retryAt: w.clock.Now().Add(time.Minute), backoff: time.Minute}, d, "nothing else is remembered")
		}
	}
	d := &demand{}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.e.took(d, time.Hour)
		assert.Equal(t, want*time.Minute, d.backoff)
	}
}

// If the context ends, nothing is concluded from that.
func TestNothingIsConcludedWithoutTime(t *testing.T) {
	w := full(t)
	w.waiting("p", small)
	w.round()
	w.pass(time.Minute)
	require.NoError(t, w.e.updatePods(t.Context(), changeSet{}))
	require.NoError(t, w.e.checkDemands(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.e.judge(ctx, changeSet{}), context.Canceled)
	require.Empty(t, w.byReason())
	require.Zero(t, w.unexplained()[names.UnexplainedTooLong])
	w.round()
	require.Equal(t, []string{heldNote}, w.events())
}

// A tenant has few demands, and all together have, too. Pods that are left out are read again when there is
// room for them.
func TestDemandsAreFew(t *testing.T) {
	w := full(t)
	w.e.limits = limits{demands: 3, perNamespace: 2}
	on := func(name, namespace, host string) {
		c := allocator.Claim(name+"-gpu", allocator.Request("gpu", small, 1))
		c.Namespace, c.UID = namespace, types.UID("uid-"+name)
		w.create(c)
		w.pod(name, name+"-gpu", func(p *corev1.Pod) {
			p.Namespace, p.Spec.NodeSelector = namespace, map[string]string{corev1.LabelHostname: host}
		})
	}
	for i := range 4 {
		on(fmt.Sprintf("p-%d", i), "team-a", fmt.Sprintf("node-%d", i))
	}
	w.explained()
	require.Equal(t, map[string]int{names.UnexplainedTooLong: 0, names.UnexplainedTooMany: 2}, w.unexplained())
	on("q-0", "team-b", "node-4")
	w.explained()
	require.Len(t, w.e.demands, 3)
	require.Equal(t, 2, w.unexplained()[names.UnexplainedTooMany])
	on("q-1", "team-b", "node-5")
	on("q-2", "team-b", "node-4")
	w.explained()
	require.Len(t, w.e.demands, 3)
	require.Equal(t, 3, w.unexplained()[names.UnexplainedTooMany])
	require.Len(t, w.events(), 4, "who asks for the same is not left out")

	for key, p := range w.e.pods {
		if key.Namespace == "team-a" && p.demand != nil {
			w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			break
		}
	}
	w.round()
	require.Equal(t, 2, w.unexplained()[names.UnexplainedTooMany])
	require.Len(t, w.events(), 5)
	for key := range w.e.pods {
		w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	}
	w.round()
	require.Empty(t, w.e.demands)
	require.Zero(t, w.unexplained()[names.UnexplainedTooMany])
}

// What only init containers ask for differs from what all containers together do.
func TestContainersAreNotAddedUp(t *testing.T) {
	w := newWorld(t, 0)
	w.node("two", 2)
	held := w.claim("secret", "mine", wholeGPU, "two")
	require.NotNil(t, held.Status.Allocation)
	container := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: wholeGPU}}
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Name: wholeGPU}, class))
	class.Spec.ExtendedResourceName = ptr.To("nvidia.com/gpu")
	require.NoError(t, w.api.Update(t.Context(), class))
	w.pod("one", "", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{container}, []corev1.Container{container}
	})
	w.pod("both", "", func(p *corev1.Pod) {
		second := *container.DeepCopy()
		second.Name = "d"
		p.Spec.InitContainers, p.Spec.Containers = nil, []corev1.Container{container, second}
	})
	w.explained()
	require.Len(t, w.e.demands, 2)
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], " team-a/both: ")
}

// What of a pod another driver may serve is not judged.
func TestPodsOfAnotherDriver(t *testing.T) {
	nic := func(class, selector string) resourceapi.DeviceRequest {
		r := allocator.Request("nic", class, 1)
		if selector != "" {
			r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
		}
		return r
	}
	gpus := allocator.Request("gpu", small, 1)
	either := resourceapi.DeviceRequest{Name: "either", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "gpu", DeviceClassName: small, Count: 1}, {Name: "nic", DeviceClassName: "nic", Count: 1},
	}}
	const ofOthers, attribute = `device.driver == "nic.example.com"`, `device.attributes["nic.example.com"].speed == "fast"`
	for name, test := range map[string]struct {
		requests []resourceapi.DeviceRequest
		want     string
	}{
		"a NIC":                  {[]resourceapi.DeviceRequest{nic("nic", "")}, ""},
		"a NIC by selector":      {[]resourceapi.DeviceRequest{nic("any", ofOthers)}, ""},
		"a NIC by attribute":     {[]resourceapi.DeviceRequest{nic("any", attribute)}, ""},
		"a GPU and a NIC":        {[]resourceapi.DeviceRequest{nic("nic", ""), gpus}, "DevicesHeld team-a/p: Waits for 1 × " + small + ": 0 of 2 nodes"},
		"a GPU or a NIC":         {[]resourceapi.DeviceRequest{either}, ""},
		"a GPU of a free class":  {[]resourceapi.DeviceRequest{nic("any", `device.attributes["gpu.tranche.dev"].profile == "1g.10gb"`)}, ""},
		"a GPU by its own class": {[]resourceapi.DeviceRequest{nic("own", "")}, "DevicesHeld team-a/p: Waits for "},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t)
			for class, selector := range map[string]string{"nic": ofOthers, "any": "", "own": `device.driver == "gpu.tranche.dev"`} {
				c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
				if selector != "" {
					c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
				}
				w.create(c)
			}
			w.asks("p", resourceapi.DeviceClaim{Requests: test.requests})
			w.explained()
			if test.want == "" {
				require.Empty(t, w.events())
				return
			}
			require.Len(t, w.events(), 1)
			assert.Contains(t, w.events()[0], test.want)
		})
	}
}

func TestMetrics(t *testing.T) {
	w := full(t)
	w.waiting("p", small)
	w.waiting("q", small)
	registry := prometheus.NewRegistry()
	w.e.metrics = newMetrics(registry)
	w.explained()
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tranche_pending_pod_api_requests_total Requests to the API server for these events.
# TYPE tranche_pending_pod_api_requests_total counter
tranche_pending_pod_api_requests_total 6
# HELP tranche_pending_pod_events_total Events that say why a pod waits.
# TYPE tranche_pending_pod_events_total counter
tranche_pending_pod_events_total{reason="DevicesHeld"} 2
# HELP tranche_pending_pods Pods that wait because of their claims, by the reason of their event.
# TYPE tranche_pending_pods gauge
tranche_pending_pods{reason="DevicesHeld"} 2
# HELP tranche_pending_pods_unexplained Pods that wait and get no event: too many differ (TooMany), or judging them takes too long (TooLong).
# TYPE tranche_pending_pods_unexplained gauge
tranche_pending_pods_unexplained{cause="TooLong"} 0
tranche_pending_pods_unexplained{cause="TooMany"} 0
`)))
}

// 200 demands and 20,000 pods are remembered for 5,000 nodes in little memory, and counted quickly.
func TestManyPodsAndDemands(t *testing.T) {
	const nodes, pods, demands = 5000, 20_000, 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	e := New(nil, nil, nil, Options{})
	e.limits.perNamespace = demands
	for i := range nodes {
		e.nodes[fmt.Sprintf("node-%d", i)] = &node{verdicts: map[*demand]*fit.Outcome{}}
	}
	for i := range pods {
		key := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("training-job-%d", i)}
		p := &pod{uid: types.UID(key.Name), claims: []types.NamespacedName{{Namespace: "team-a", Name: key.Name + "-gpu"}}}
		e.pods[key] = p
		e.join(key, p, &poddemand.Demand{}, fmt.Sprint(i%demands))
		p.demand.certain = true
	}
	for _, n := range e.nodes {
		for _, d := range e.demands {
			n.verdicts[d] = d.shared(fit.Outcome{Verdict: fit.Full})
		}
	}
	began := time.Now()
	for _, d := range e.demands {
		e.settle(d)
	}
	settled := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc-before.HeapAlloc) >> 20
	byReason, _ := e.numbers()
	t.Logf("%d MB kept; all answers take %s", kept, settled)
	assert.Equal(t, map[string]int{names.EventDevicesHeld: pods}, byReason)
	assert.Less(t, kept, int64(100))
	runtime.KeepAlive(e)
}
