package waiting

import (
	"context"
	"fmt"
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

	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/allocator"
)

func TestEveryAnswerHasAVerdict(t *testing.T) {
	require.LessOrEqual(t, int(firstAnswer)+len(answers), mostVerdicts)
	assert.Equal(t, room, verdictOf(why.None, true))
	assert.Equal(t, unclear, verdictOf(why.None, false))
	for i, a := range answers {
		assert.Equal(t, firstAnswer+verdict(i), verdictOf(a, true))
	}
}

// asks creates a pod and its claim for devices.
func (w *world) asks(name string, d resourceapi.DeviceClaim) types.NamespacedName {
	w.t.Helper()
	c := allocator.Claim(name + "-gpu")
	c.Namespace, c.UID, c.Spec.Devices = "team-a", types.UID("uid-"+name), d
	w.create(c)
	return w.pod(name, name+"-gpu")
}

// Of two pods that ask for the same, one gets the device: the others hear that it is held.
func TestAPodOfAShapeIsScheduled(t *testing.T) {
	w := newWorld(t, 1)
	first, second := w.waiting("p-0", wholeGPU), w.waiting("p-1", wholeGPU)
	w.looked(first, second)
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
	w.see(first)
	w.judge("node-0")
	third := w.waiting("p-2", wholeGPU)
	w.looked(third)
	require.Len(t, w.events(), 2)
	for i, p := range []types.NamespacedName{second, third} {
		assert.Contains(t, w.events()[i], "DevicesHeld "+p.String())
	}
	require.Equal(t, map[why.Answer]int{why.DevicesHeld: 2}, w.byAnswer())
}

// What takes the allocator long is parked for a while and gets no event. The others are judged.
func TestAPodThatTakesLongToJudge(t *testing.T) {
	w := newWorld(t, 0)
	w.node("big", 8)
	slow := w.asks("slow", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{allocator.Request("a", small, 16), allocator.Request("b", wholeGPU, 7)}})
	other := w.waiting("other", "gpu-mig-1g-35gb.tranche.dev")
	w.r.memory.patience.node = time.Second
	w.looked(slow, other)
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "NoSuchDevice team-a/other: ")
	require.Equal(t, map[string]int{tooLong: 1, tooMany: 0}, w.leftOut())
	require.Equal(t, map[why.Answer]int{why.NoSuchDevice: 1}, w.byAnswer())

	// It is not judged until the time is over, which is longer each time.
	for _, minutes := range []time.Duration{1, 2, 4} {
		w.pass(minutes*time.Minute - time.Second)
		w.sweep()
		w.calls = 0
		require.Empty(t, w.r.memory.toJudge("big"))
		w.pass(time.Second)
		w.sweep()
		require.Equal(t, map[string]int{tooLong: 1, tooMany: 0}, w.leftOut())
		for _, s := range w.r.memory.shapes {
			require.True(t, !s.parked() || s.parkedUntil.After(w.clock.Now()))
		}
	}
}

// A controller that is starved of time parks what it would answer at once otherwise.
func TestAParkedPodGetsItsAnswerLater(t *testing.T) {
	w := newWorld(t, 0)
	w.node("big", 1)
	usual := w.r.memory.patience
	w.r.memory.patience = patience{node: time.Nanosecond}
	pod := w.waiting("pod", "gpu-mig-1g-35gb.tranche.dev")
	w.looked(pod)
	require.Equal(t, map[string]int{tooLong: 1, tooMany: 0}, w.leftOut())
	require.Empty(t, w.events())
	w.r.memory.patience = usual
	w.pass(time.Minute)
	w.sweep()
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "NoSuchDevice team-a/pod: ")
}

// A controller that never gets enough time has more of it with each try.
func TestAParkedPodHasMoreTimeLater(t *testing.T) {
	w := newWorld(t, 0)
	w.node("big", 1)
	pod := w.waiting("pod", "gpu-mig-1g-35gb.tranche.dev")
	w.r.memory.patience = patience{first: time.Minute, node: time.Nanosecond, average: time.Minute}
	w.looked(pod)
	require.Equal(t, map[string]int{tooLong: 1, tooMany: 0}, w.leftOut())
	w.r.memory.patience.node = 600 * time.Millisecond
	assert.Equal(t, 1200*time.Millisecond, w.r.memory.forReading(pod))
	w.pass(time.Minute)
	w.sweep()
	require.Len(t, w.r.memory.shapes, 1)
	for _, s := range w.r.memory.shapes {
		assert.Equal(t, 1200*time.Millisecond, w.r.memory.forNode(s))
		s.judged = 1
		w.r.memory.judged(s, "big", unclear, time.Second, w.clock.Now())
		assert.False(t, s.parked())
		w.r.memory.judged(s, "big", unclear, 1300*time.Millisecond, w.clock.Now())
		assert.True(t, s.parked())
	}
}

func TestPatienceAfter(t *testing.T) {
	p := patience{node: 250 * time.Millisecond, first: 2 * time.Second, average: 40 * time.Millisecond}
	assert.Equal(t, p, p.after(0))
	assert.Equal(t, patience{500 * time.Millisecond, 4 * time.Second, 40 * time.Millisecond}, p.after(1))
	assert.Equal(t, patience{1500 * time.Millisecond, 16 * time.Second, 40 * time.Millisecond}, p.after(100))
}

func TestParkedFor(t *testing.T) {
	for times, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		assert.Equal(t, want*time.Minute, parkedFor(times))
	}
	assert.Equal(t, time.Hour, parkedFor(1000))
}

// A shape may take little time on average.
func TestPatience(t *testing.T) {
	for _, test := range []struct {
		spent, last time.Duration
		judged      int
		want        bool
	}{
		{spent: time.Second, judged: 1},
		{spent: 3 * time.Second, judged: 5, want: true},
		{spent: 200 * time.Second, judged: 5000},
		{spent: 210 * time.Second, judged: 5000, want: true},
		{last: defaultPatience.node, want: true},
	} {
		s := shape{spent: test.spent, judged: test.judged}
		assert.Equal(t, test.want, s.tooSlow(test.last, defaultPatience), "%+v", test)
	}
}

// If the time for a node is over, nothing is concluded from that.
func TestNothingIsConcludedWithoutTime(t *testing.T) {
	w := full(t)
	p := w.waiting("p", small)
	w.see(p)
	w.pass(time.Minute)
	_, err := w.r.reconcilePod(t.Context(), request(p))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	objects, err := w.r.facts(ctx, "node-0")
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, w.r.judge(ctx, "node-0", objects, w.r.memory.toJudge("node-0")), context.Canceled)
	require.Empty(t, w.byAnswer())
	require.Zero(t, w.leftOut()[tooLong])
	w.judge()
	require.Equal(t, []string{heldNote}, w.events())
}

// A tenant has few shapes, and all together have, too. Pods that are left out are looked at when there is
// room for them.
func TestShapesAreFew(t *testing.T) {
	w := full(t)
	w.r.memory.limits = limits{shapes: 3, perNamespace: 2}
	on := func(name, namespace, host string) types.NamespacedName {
		c := allocator.Claim(name+"-gpu", allocator.Request("gpu", small, 1))
		c.Namespace, c.UID = namespace, types.UID("uid-"+name)
		w.create(c)
		return w.pod(name, name+"-gpu", func(p *corev1.Pod) {
			p.Namespace, p.Spec.NodeSelector = namespace, map[string]string{corev1.LabelHostname: host}
		})
	}
	var pods []types.NamespacedName
	for i := range 4 {
		pods = append(pods, on(fmt.Sprintf("p-%d", i), "team-a", fmt.Sprintf("node-%d", i)))
	}
	pods = append(pods, on("q-0", "team-b", "node-4"), on("q-1", "team-b", "node-5"), on("q-2", "team-b", "node-4"), on("q-3", "team-b", "node-0"))
	w.looked(pods...)
	require.Len(t, w.r.memory.shapes, 3)
	require.Equal(t, map[string]int{tooLong: 0, tooMany: 3}, w.leftOut())
	require.Len(t, w.events(), 5, "who asks for the same is not left out")

	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p-1"}})
	w.see(pods[1])
	w.sweep()
	require.Equal(t, map[string]int{tooLong: 0, tooMany: 2}, w.leftOut())
	require.Len(t, w.events(), 6)
	for _, p := range pods {
		w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
	}
	w.see(pods...)
	require.Empty(t, w.r.memory.shapes)
	require.Empty(t, w.r.memory.shapesBy)
	require.Empty(t, w.leftOut()[tooMany])
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
	one := w.pod("one", "", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{container}, []corev1.Container{container}
	})
	both := w.pod("both", "", func(p *corev1.Pod) {
		second := *container.DeepCopy()
		second.Name = "d"
		p.Spec.InitContainers, p.Spec.Containers = nil, []corev1.Container{container, second}
	})
	w.looked(one, both)
	require.Len(t, w.r.memory.shapes, 2)
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
		"a GPU and a NIC":        {[]resourceapi.DeviceRequest{nic("nic", ""), gpus}, "DevicesHeld team-a/p: Waits for 1 × 1g.10gb (class " + small + "). Of 2 nodes"},
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
			w.looked(w.asks("p", resourceapi.DeviceClaim{Requests: test.requests}))
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
	w.looked(w.waiting("p", small), w.waiting("q", small))
	registry := prometheus.NewRegistry()
	registry.MustRegister(&podCollector{w.r.memory})
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tranche_waiting_pods Pods that wait because of their claims, by the reason of their event.
# TYPE tranche_waiting_pods gauge
tranche_waiting_pods{reason="DevicesHeld"} 2
# HELP tranche_waiting_pods_unexplained Pods that wait and get no event: too many differ (TooMany), or judging them takes too long (TooLong).
# TYPE tranche_waiting_pods_unexplained gauge
tranche_waiting_pods_unexplained{reason="TooLong"} 0
tranche_waiting_pods_unexplained{reason="TooMany"} 0
`)))
}
