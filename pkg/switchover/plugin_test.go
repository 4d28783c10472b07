package switchover

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// fakeNode is a node's plugin, with its hardware. It answers as the node would: an
// answer that needs time comes when the time has passed.
type fakeNode struct {
	name  string
	cards []string
	// applied is the hash that the hardware follows; memory is what the plugin has of
	// its task.
	applied string
	task    v1alpha1.Task
	// since is when the task that is worked on was seen first.
	working string
	since   time.Time

	// What can be wrong with it.
	dead    bool
	slow    time.Duration
	owners  []string
	changes func(sw *v1alpha1.Switch) []v1alpha1.CardChange
	answer  func(sw *v1alpha1.Switch, state v1alpha1.State) (v1alpha1.TaskPhase, string, string)
	wrong   bool     // it publishes something else than it says
	foreign []string // devices that it holds for claims that are gone
	kept    []string // devices that may be held while their card is changed
	quick   bool     // there are no claims, and slices are made when they are asked for

	// changed: its last report said something else than the one before.
	changed bool
}

const deviceOf = "-mig-1g-10gb-0"

// addNode adds a node with cards, a plugin, and a GPUNode that is in no profile.
func (w *world) addNode(name string, cards ...string) *fakeNode {
	if len(cards) == 0 {
		cards = []string{cardA, cardB}
	}
	n := &fakeNode{name: name, cards: cards}
	n.changes = func(sw *v1alpha1.Switch) []v1alpha1.CardChange {
		if sw.To.Profile == "" || sw.To.Profile == v1alpha1.DefaultProfile {
			return nil
		}
		return []v1alpha1.CardChange{{Card: n.cards[0], What: "partitions for " + sw.To.Profile}}
	}
	w.nodes[name] = n
	require.NoError(w.t, w.api.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)}}))
	require.NoError(w.t, w.api.Create(w.t.Context(), &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	n.plugin(w)
	return n
}

// settled runs a node until it follows a profile.
func (w *world) settled(node, profile string) *fakeNode {
	w.t.Helper()
	w.run(node, time.Hour, inProfile(profile))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = map[string]int{}
	return w.nodes[node]
}

// plugin lets the plugin look at its GPUNode once.
func (n *fakeNode) plugin(w *world) {
	if n.dead {
		return
	}
	var g v1alpha1.GPUNode
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: n.name}, &g); err != nil {
		return
	}
	n.work(w, &g)
	if !n.quick {
		n.publish(w)
	}
	report := n.report(w)
	n.changed = g.Status.Node == nil || !equalReports(g.Status.Node, report)
	if !n.changed {
		return
	}
	before := g.DeepCopy()
	g.Status.Node = report
	require.NoError(w.t, w.api.Status().Patch(w.t.Context(), &g, client.MergeFrom(before)))
}

// work answers what the controller asks.
func (n *fakeNode) work(w *world, g *v1alpha1.GPUNode) {
	sw, state := g.Status.Switch, g.Status.State
	if !g.Status.Asks(&n.task) {
		return
	}
	if key := sw.ID + string(state); n.working != key {
		n.working, n.since = key, w.clock.Now()
	}
	if w.clock.Now().Sub(n.since) < n.slow {
		return
	}
	task := v1alpha1.Task{Switch: sw.ID, State: state, Phase: v1alpha1.TaskDone}
	if state == v1alpha1.Planning {
		task.Phase, task.Changes = v1alpha1.TaskPlanned, n.changes(sw)
	}
	if n.answer != nil {
		if phase, reason, message := n.answer(sw, state); phase != "" {
			task.Phase, task.Reason, task.Message = phase, reason, message
		}
	}
	if task.Phase == v1alpha1.TaskDone && state != v1alpha1.Planning {
		wish := sw.Target(state)
		for _, card := range sw.Cards {
			if n.applied != wish.Hash {
				// Nothing is changed under a pod.
				assert.Subset(w.t, n.kept, n.held(w, card), "changed while it is held")
			}
		}
		n.applied = wish.Hash
	}
	n.task = task
}

// held are the devices of a card that claims of pods hold, as the node sees it.
func (n *fakeNode) held(w *world, card string) []string {
	if n.quick {
		return nil
	}
	var claims resourceapi.ResourceClaimList
	require.NoError(w.t, w.api.List(w.t.Context(), &claims, client.MatchingFields{poolIndex: gpu.PoolName(n.name, card)}))
	held := slices.Clone(n.foreign)
	for i := range claims.Items {
		for _, user := range claims.Items[i].Status.ReservedFor {
			err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: claims.Items[i].Namespace, Name: user.Name}, &corev1.Pod{})
			if err == nil && !ptr.Deref(claims.Items[i].Status.Allocation.Devices.Results[0].AdminAccess, false) {
				held = append(held, claims.Items[i].Status.Allocation.Devices.Results[0].Device)
			}
		}
	}
	slices.Sort(held)
	return slices.Compact(held)
}

func (n *fakeNode) devices(card string) []resourceapi.Device {
	return []resourceapi.Device{{
		Name:       card,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: ptr.To("p" + n.applied)}},
	}}
}

// publish keeps the node's slices.
func (n *fakeNode) publish(w *world) {
	for _, card := range n.cards {
		devices := n.devices(card)
		if n.wrong {
			devices[0].Name = "wrong"
		}
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + card}}
		s.Spec = resourceapi.ResourceSliceSpec{
			Driver: gpu.DriverName, NodeName: ptr.To(n.name), Devices: devices,
			Pool: resourceapi.ResourcePool{Name: gpu.PoolName(n.name, card), Generation: 1, ResourceSliceCount: 1},
		}
		var old resourceapi.ResourceSlice
		err := w.api.Get(w.t.Context(), client.ObjectKeyFromObject(s), &old)
		switch {
		case apierrors.IsNotFound(err):
			require.NoError(w.t, w.api.Create(w.t.Context(), s))
		case err == nil && publish.Digest(old.Spec.Devices) != publish.Digest(devices):
			s.ResourceVersion = old.ResourceVersion
			require.NoError(w.t, w.api.Update(w.t.Context(), s))
		}
	}
}

func (n *fakeNode) report(w *world) *v1alpha1.NodeReport {
	r := &v1alpha1.NodeReport{BootID: "boot", Count: int32(len(n.cards)), Applied: n.applied, Owners: n.owners}
	for _, card := range n.cards {
		c := v1alpha1.CardReport{Name: card, Vendor: "nvidia", Product: "H100", Slice: publish.Digest(n.devices(card)), Held: n.held(w, card)}
		r.Cards = append(r.Cards, c)
		r.Held += int32(len(c.Held))
	}
	if n.task.Switch != "" {
		r.Task = n.task.DeepCopy()
	}
	return r
}

func equalReports(a, b *v1alpha1.NodeReport) bool {
	return assert.ObjectsAreEqual(a.DeepCopy(), b.DeepCopy()) || fmt.Sprintf("%+v%+v", *a, a.Task) == fmt.Sprintf("%+v%+v", *b, b.Task)
}
