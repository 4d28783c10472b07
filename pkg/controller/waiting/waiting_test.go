package waiting

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/allocator"
)

const heldNote = "DevicesHeld team-a/p: Waits for 1 × gpu-mig-1g-10gb.tranche.dev: " +
	"0 of 2 nodes fit: 2 full. For details: kubectl tranche why p -n team-a"

// full is a world of two nodes whose GPUs another team holds.
func full(t *testing.T) *world {
	w := newWorld(t, 2)
	w.claim("secret", "mine-0", wholeGPU, "node-0")
	w.claim("secret", "mine-1", wholeGPU, "node-1")
	return w
}

func TestAPodGetsAnEventOnceAfterAMinute(t *testing.T) {
	w := full(t)
	w.waiting("p", small)
	w.round()
	w.pass(59 * time.Second)
	w.round()
	require.Empty(t, w.events())
	require.Zero(t, w.calls, "nothing is read before")

	w.pass(time.Second)
	w.round()
	require.Equal(t, []string{heldNote}, w.events())
	require.Equal(t, map[string]int{names.EventDevicesHeld: 1}, w.byReason())
	var event eventsv1.EventList
	require.NoError(t, w.api.List(t.Context(), &event))
	assert.Equal(t, eventsv1.Event{
		TypeMeta: event.Items[0].TypeMeta, ObjectMeta: event.Items[0].ObjectMeta, EventTime: event.Items[0].EventTime, Note: event.Items[0].Note,
		ReportingController: names.ControllerName, ReportingInstance: names.ControllerName, Action: "Explain", Reason: names.EventDevicesHeld, Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "team-a", Name: "p", UID: "uid-p"},
	}, event.Items[0])
	assert.True(t, event.Items[0].EventTime.Equal(ptr.To(metav1.NewMicroTime(w.clock.Now()))))
	w.calls = 0
	for range 3 {
		w.pass(10 * time.Minute)
		w.round()
	}
	require.Zero(t, w.calls, "nothing is polled")
	w.round("node-0", "node-1")
	require.Equal(t, []string{heldNote}, w.events())
	assert.NotContains(t, strings.Join(w.events(), ""), "secret")
}

// told has a pod told that all devices are held.
func told(t *testing.T) (*world, types.NamespacedName) {
	w := full(t)
	p := w.waiting("p", small)
	w.explained()
	require.Len(t, w.events(), 1)
	return w, p
}

func taint(node string) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "fan-" + node}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: ptr.To(names.DriverName), Pool: ptr.To(names.PoolName(node))},
		Taint:          resourceapi.DeviceTaint{Key: "example.com/fan", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}
}

func TestAnotherAnswerIsToldAndTheFirstOneAgain(t *testing.T) {
	w, _ := told(t)
	w.create(taint("node-0"))
	w.round("node-0")
	require.Equal(t, []string{heldNote}, w.events(), "the answer is the same as long as one node has only held ones")
	w.create(taint("node-1"))
	w.round("node-1")
	require.Len(t, w.events(), 2)
	assert.Contains(t, w.events()[1], "DevicesTainted team-a/p: ")
	for _, node := range []string{"node-0", "node-1"} {
		w.delete(taint(node))
	}
	w.round("node-0", "node-1")
	require.Len(t, w.events(), 2)
	assert.Contains(t, w.events()[0], "2 times DevicesHeld team-a/p: ")
}

func TestRoomIsNotTold(t *testing.T) {
	w := newWorld(t, 3)
	w.claim("secret", "mine-0", wholeGPU, "node-0")
	w.waiting("p", small)
	w.explained()
	w.pass(2 * time.Minute)
	w.round()
	require.Empty(t, w.events())
	require.Empty(t, w.byReason())

	// Nodes are not judged as long as another one has room.
	var room string
	for _, d := range w.e.demands {
		room = d.room.name
	}
	before := w.calls
	w.round("node-0", "node-1", "node-2")
	require.Equal(t, before+1, w.calls, "only the node that had room is judged again")

	w.claim("secret", "mine-1", wholeGPU, "node-1")
	w.claim("secret", "mine-2", wholeGPU, "node-2")
	w.round(room)
	require.Len(t, w.events(), 1, "the others are judged when the last room is gone")
	assert.Contains(t, w.events()[0], "0 of 3 nodes fit: 3 full.")
}

// A thousand pods that ask for the same read their claims, and each node once.
func TestPodsThatAskForTheSameShareTheAnswer(t *testing.T) {
	w := full(t)
	const pods = perRound
	for i := range pods {
		w.waiting(fmt.Sprintf("p-%d", i), small)
	}
	w.explained()
	require.Len(t, w.events(), pods)
	assert.Equal(t, pods+2+pods, w.calls, "claims, nodes and events")
	assert.Len(t, w.e.demands, 1)
	assert.Equal(t, map[string]int{names.EventDevicesHeld: pods}, w.byReason())
	w.calls = 0
	w.round("node-1")
	assert.Equal(t, 1, w.calls, "then only what changes is read")
	require.Len(t, w.events(), pods)
}

func TestNothingIsRememberedOfPodsThatAreGone(t *testing.T) {
	for name, change := range map[string]func(*world, types.NamespacedName){
		"deleted": func(w *world, p types.NamespacedName) {
			w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
		},
		"scheduled": func(w *world, p types.NamespacedName) {
			var pod corev1.Pod
			require.NoError(w.t, w.api.Get(w.t.Context(), p, &pod))
			pod.Spec.NodeName = "node-0"
			require.NoError(w.t, w.api.Update(w.t.Context(), &pod))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := told(t)
			change(w, p)
			w.round()
			assert.Empty(t, w.e.pods)
			assert.Empty(t, w.e.demands)
			for _, n := range w.e.nodes {
				assert.Empty(t, n.verdicts)
			}
			assert.Empty(t, w.byReason())
			before := w.calls
			w.round("node-0")
			assert.Equal(t, before, w.calls)
		})
	}
}

// A node can go between the list of nodes and the look at it.
func TestANodeThatIsJustGone(t *testing.T) {
	w := newWorld(t, 1)
	require.NoError(t, w.e.judgeNode(t.Context(), &node{name: "gone"}, nil))
}

// A pod of the same name is another one.
func TestAPodOfTheSameName(t *testing.T) {
	w, p := told(t)
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
	w.pod("p", "p-gpu", func(pod *corev1.Pod) { pod.UID = "uid-second" })
	w.round()
	require.Len(t, w.events(), 1)
	w.pass(time.Minute)
	w.round()
	require.Len(t, w.events(), 2)
}

// A controller that has just started continues the event of the one before.
func TestARestart(t *testing.T) {
	w, _ := told(t)
	for _, times := range []string{"2 times ", "3 times "} {
		w.start()
		w.explained()
		require.Equal(t, []string{times + heldNote}, w.events())
	}
	// Even if it was told something else before that.
	w.create(taint("node-0"))
	w.create(taint("node-1"))
	w.round("node-0", "node-1")
	require.Len(t, w.events(), 2)
	for _, node := range []string{"node-0", "node-1"} {
		w.delete(taint(node))
	}
	w.start()
	w.explained()
	require.Contains(t, w.events(), "4 times "+heldNote)
}

// An event is written again before the API server forgets it.
func TestEventsAreRenewed(t *testing.T) {
	w, _ := told(t)
	w.pass(44 * time.Minute)
	w.round()
	require.Equal(t, []string{heldNote}, w.events())
	w.pass(time.Minute)
	w.calls = 0
	w.round()
	require.Equal(t, []string{"2 times " + heldNote}, w.events())
	require.Equal(t, 1, w.calls)
	w.pass(why.Renewal)
	w.round()
	require.Equal(t, []string{"3 times " + heldNote}, w.events())
	var event eventsv1.EventList
	require.NoError(t, w.api.List(t.Context(), &event))
	require.Equal(t, w.clock.Now().UTC(), event.Items[0].Series.LastObservedTime.UTC())

	// It has expired.
	w.delete(&event.Items[0])
	for _, times := range []string{"", "2 times "} {
		w.pass(why.Renewal)
		w.round()
		require.Equal(t, []string{times + heldNote}, w.events())
	}

	// Its numbers have changed: another event has them.
	w.delete(w.gpuNode("node-1"))
	w.round("node-1")
	require.Len(t, w.events(), 1)
	w.pass(why.Renewal)
	w.round()
	require.Len(t, w.events(), 2)
	require.Contains(t, w.events()[1], "0 of 1 nodes fit: 1 full.")
}

// A pod that was told why it waits is told that there is room, when that lasts.
func TestRoomEndsAnAnswer(t *testing.T) {
	w, p := told(t)
	w.node("node-2", 1)
	w.round("node-2")
	w.pass(59 * time.Second)
	w.round()
	require.Equal(t, []string{heldNote}, w.events(), "another pod may take it")
	w.pass(time.Second)
	w.round()
	free := "Normal DevicesFree team-a/p: Devices that it asks for are free on a node. If it goes on waiting, something else is the reason."
	require.Equal(t, []string{heldNote, free}, w.events())
	w.pass(time.Hour)
	w.round()
	require.Equal(t, []string{heldNote, free}, w.events(), "it is not renewed")
	w.delete(w.gpuNode("node-2"))
	w.round("node-2")
	require.Equal(t, []string{"2 times " + heldNote, free}, w.events())
	require.Equal(t, map[string]int{names.EventDevicesHeld: 1}, w.byReason())
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
	w.pass(time.Hour)
	w.round()
	require.Len(t, w.events(), 2, "it does not wait any more")
	require.Empty(t, w.e.pods)
}

func ofTemplate(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("half")}}
}

func TestAnswersThatNoNodeGives(t *testing.T) {
	gate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a.b/c"}} }
	resources := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}
		}
	}
	for name, test := range map[string]struct {
		claim  string
		class  string
		change func(*corev1.Pod)
		world  func(*world)
		want   string
	}{
		"no claim":          {"p-gpu", "", nil, nil, "ClaimNotCreated team-a/p: The claim p-gpu does not exist in the namespace team-a. For details: kubectl tranche why p -n team-a"},
		"no template":       {"", "", ofTemplate, nil, "ClaimNotCreated team-a/p: The pod names the ResourceClaimTemplate half, which does not exist in the namespace team-a."},
		"no class":          {"p-gpu", "gpu-mig-1g-99gb.tranche.dev", nil, nil, "RequestInvalid team-a/p: There is no DeviceClass gpu-mig-1g-99gb.tranche.dev; did you mean gpu-mig-1g-10gb.tranche.dev?"},
		"extended resource": {"", "", resources("nvidia.com/mig-1g.10gb"), nil, "DevicesHeld team-a/p: Waits for 1 × gpu-mig-1g-10gb.tranche.dev (nvidia.com/mig-1g.10gb):"},
		"device plugin": {"", "", resources("nvidia.com/mig-1g.10gb"), func(w *world) {
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}}})
		}, ""},
		"unknown plugins": {"", "", resources("nvidia.com/mig-1g.10gb"), func(w *world) { w.failing.Failing = "list *v1.NodeList" }, ""},
		"of a template": {"", "", ofTemplate, func(w *world) {
			w.create(&resourceapi.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "half"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: allocator.Claim("", allocator.Request("gpu", small, 1)).Spec},
			})
		}, "ClaimNotCreated team-a/p: The claim of \"gpu\" has not been created from the ResourceClaimTemplate half yet"},
		"another resource": {"", "", resources("example.com/nic"), nil, ""},
		"gated":            {"p-gpu", small, gate, nil, ""},
		"no such device":   {"p-gpu", "gpu-mig-1g-35gb.tranche.dev", nil, nil, "NoSuchDevice team-a/p: Waits for 1 × gpu-mig-1g-35gb.tranche.dev: no device of class gpu-mig-1g-35gb.tranche.dev; found: 1g.10gb, "},
		"no device passes": {"p-gpu", "", nil, func(w *world) {
			c := allocator.Claim("p-gpu", allocator.Request("gpu", "gpu.tranche.dev", 1))
			c.Namespace = "team-a"
			c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].productName == "H100"`}}}
			w.create(c)
		}, "NoSuchDevice team-a/p: Waits for 1 × gpu.tranche.dev with selectors: 2 devices of class gpu.tranche.dev, none passes " +
			"`device.attributes[\"gpu.tranche.dev\"].productName == \"H100\"`; found: productName NVIDIA H100 80GB HBM3. For details:"},
		"not there": {"p-gpu", small, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, nil, "NodesExcluded team-a/p: "},
		"another driver": {"p-gpu", "nic", nil, func(w *world) {
			w.create(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "nic.example.com"`}}},
			}})
		}, ""},
		"no nodes": {"p-gpu", small, nil, func(w *world) { w.delete(w.gpuNode("node-0")); w.delete(w.gpuNode("node-1")) },
			"NoSuchDevice team-a/p: Waits for 1 × gpu-mig-1g-10gb.tranche.dev: no node publishes GPUs."},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t)
			if test.world != nil {
				test.world(w)
			}
			if test.class != "" {
				w.claim("team-a", "p-gpu", test.class, "")
			}
			w.pod("p", test.claim, func(p *corev1.Pod) {
				if test.change != nil {
					test.change(p)
				}
			})
			w.explained()
			w.round()
			if test.want == "" {
				require.Empty(t, w.events())
				return
			}
			require.Len(t, w.events(), 1)
			assert.Contains(t, w.events()[0], test.want)
		})
	}
}

// A claim that is created later has the pod read again, and so has a pod or a class that changes.
func TestWhatHasAPodReadAgain(t *testing.T) {
	w := full(t)
	p := w.pod("p", "p-gpu")
	w.explained()
	require.Len(t, w.events(), 1)
	w.e.changes.add(w.claim("team-a", "p-gpu", small, ""))
	w.round()
	require.Len(t, w.events(), 2)

	var pod corev1.Pod
	require.NoError(t, w.api.Get(t.Context(), p, &pod))
	pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	require.NoError(t, w.api.Update(t.Context(), &pod))
	w.round()
	require.Len(t, w.events(), 3)
	assert.Contains(t, w.events()[2], "NodesExcluded team-a/p: ")
	assert.Len(t, w.e.demands, 1, "nobody has the earlier demand")

	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: small}}
	w.delete(class)
	w.e.changes.add(class)
	w.round()
	require.Len(t, w.events(), 4)
	assert.Contains(t, w.events()[3], "RequestInvalid team-a/p: ")
}

// Whatever cannot be read is told, and read again in the next round.
func TestEachReadThatFails(t *testing.T) {
	w := full(t)
	w.waiting("p", small)
	w.pod("q", "", ofTemplate)
	w.round()
	w.pass(time.Minute)
	changed := w.e.changes.take()
	for _, step := range []func(context.Context, changeSet) error{w.e.updateNodes, w.e.updatePods, w.e.judge} {
		w.failing.Each(t, func() error { return step(t.Context(), changed) })
	}
	w.round()
	assert.Contains(t, w.events(), heldNote)
}
