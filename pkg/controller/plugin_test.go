package controller

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

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// fakeNode is a node's plugin, with its hardware. It answers as the node would: an
// answer that needs time comes when the time has passed.
type fakeNode struct {
	name string
	gpus []string
	// applied is the hash that the hardware follows; memory is what the plugin has of
	// its task.
	applied string
	task    v1beta1.Task
	// since is when the task that is worked on was seen first.
	working string
	since   time.Time

	// What can be wrong with it.
	dead    bool
	slow    time.Duration
	owners  []v1beta1.OtherSystem
	changes func(sw *v1beta1.Switch) []v1beta1.GPUChange
	// second is the plan that is made once the taints stand, nil: changes again.
	second func(sw *v1beta1.Switch) (changes []v1beta1.GPUChange, shrinking []string)
	// dropped: the API server drops device taints.
	dropped   bool
	basis     string
	answer    func(sw *v1beta1.Switch, state v1beta1.State) (v1beta1.TaskPhase, string, string)
	unhealthy []v1beta1.UnhealthyGPU
	wrong     bool     // it publishes something else than it says
	gone      []string // devices that it does not publish
	foreign   []string // devices that it holds for claims that are gone
	kept      []string // devices that may be held while their GPU is changed
	// taints is the order whose taints it publishes, on tainted with a value. plan is what
	// it answered last to an order.
	taints  *v1beta1.PublishedTaints
	tainted []string
	// withheld are the GPUs of which it publishes only what claims hold.
	withheld []string
	value    string
	plan     []v1beta1.GPUChange

	quick bool // there are no claims, and slices are made when they are asked for

	// changed: its last report said something else than the one before.
	changed bool
}

// applyingEnds is an answer of a plugin that cannot apply the profile.
func applyingEnds(phase v1beta1.TaskPhase, reason, message string) func(*v1beta1.Switch, v1beta1.State) (v1beta1.TaskPhase, string, string) {
	return func(_ *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
		if s == v1beta1.Applying {
			return phase, reason, message
		}
		return "", "", ""
	}
}

const deviceOf = "-mig-1g-10gb-0"

// addNode adds a node with GPUs, a plugin, and a GPUNode that is in no profile.
func (w *world) addNode(name string, gpus ...string) *fakeNode {
	if len(gpus) == 0 {
		gpus = []string{gpuA, gpuB}
	}
	n := &fakeNode{name: name, gpus: gpus}
	n.changes = func(sw *v1beta1.Switch) []v1beta1.GPUChange {
		if sw.To.ProfileName == "" || sw.To.ProfileName == names.DefaultProfile {
			return nil
		}
		return []v1beta1.GPUChange{{GPU: n.gpus[0], Description: "partitions for " + sw.To.ProfileName}}
	}
	w.nodes[name] = n
	require.NoError(w.t, w.api.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)}}))
	require.NoError(w.t, w.api.Create(w.t.Context(), &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	n.plugin(w)
	return n
}

// twoNodes adds node-a and node-b, which have no profile, and makes them want one unless it is "".
func (w *world) twoNodes(profile string) {
	for _, name := range []string{"node-a", "node-b"} {
		w.addNode(name)
		w.settled(name, "")
		if profile != "" {
			w.wants(name, profile)
		}
	}
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
	var g v1beta1.GPUNode
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: n.name}, &g); err != nil {
		if n.taint(&g.Status); apierrors.IsNotFound(err) && !n.quick {
			n.publish(w)
		}
		return
	}
	n.taint(&g.Status)
	if !n.quick {
		n.publish(w)
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

// settles is how long it waits with a plan until the scheduler has seen the taints.
const settles = time.Second

// taint has devices tainted as the controller orders it.
func (n *fakeNode) taint(s *v1beta1.GPUNodeStatus) {
	n.taints, n.tainted, n.withheld, n.value = nil, nil, nil, ""
	if s.RequestsTaints() {
		n.taints = &v1beta1.PublishedTaints{SwitchID: s.Switch.ID, TaintGeneration: s.Switch.TaintGeneration, Withheld: n.dropped}
		n.value = s.Switch.To.ProfileName
		if s.Switch.Withhold {
			n.withheld = s.Switch.GPUs
		}
		if !n.dropped {
			n.tainted = slices.Concat(s.Switch.GPUs, s.Switch.ShrinkingGPUs)
		}
	}
}

// late is how long it takes until it answers.
func (n *fakeNode) late(state v1beta1.State) time.Duration {
	if state == v1beta1.Tainted && !n.quick {
		return max(n.slow, settles)
	}
	return n.slow
}

// work answers what the controller asks.
func (n *fakeNode) work(w *world, g *v1beta1.GPUNode) {
	sw, state := g.Status.Switch, g.Status.State
	if !g.Status.AwaitsPlugin(&n.task) {
		return
	}
	if key := fmt.Sprint(sw.ID, state, sw.TaintGeneration); n.working != key {
		n.working, n.since = key, w.clock.Now()
	}
	if w.clock.Now().Sub(n.since) < n.late(state) {
		return
	}
	task := v1beta1.Task{SwitchID: sw.ID, State: state, Phase: v1beta1.TaskDone}
	if state == v1beta1.Planning {
		task.Phase, task.Changes = v1beta1.TaskPlanned, n.changes(sw)
	}
	if state == v1beta1.Tainted {
		task.Phase, task.TaintGeneration, task.Changes = v1beta1.TaskPlanned, sw.TaintGeneration, n.changes(sw)
		if n.second != nil {
			task.Changes, task.ShrinkingGPUs = n.second(sw)
		}
		n.plan = task.Changes
	}
	if n.answer != nil {
		if phase, reason, message := n.answer(sw, state); phase != "" {
			task.Phase, task.Reason, task.Message = phase, reason, message
		}
	}
	if task.Phase == v1beta1.TaskDone && state != v1beta1.Planning && state != v1beta1.Tainted {
		desired := sw.Target(state)
		for _, change := range n.plan {
			if gpuID := change.GPU; n.applied != desired.Hash && len(sw.GPUs) > 0 {
				// Nothing is changed under a pod.
				assert.Subset(w.t, n.kept, n.held(w, gpuID), "changed while it is held")
			}
		}
		n.applied = desired.Hash
	}
	n.task = task
}

// held are the devices of a GPU that claims of pods hold, as the node sees it.
func (n *fakeNode) held(w *world, gpuID string) []string {
	if n.quick {
		return nil
	}
	var claims resourceapi.ResourceClaimList
	require.NoError(w.t, w.api.List(w.t.Context(), &claims, client.MatchingFields{drain.NodeIndex: n.name}))
	held := slices.Clone(n.foreign)
	for i := range claims.Items {
		if device := claims.Items[i].Status.Allocation.Devices.Results[0].Device; gpu.OfDevice(device) != gpuID {
			continue
		}
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

// devices are what is published of a GPU: itself and a few of its partitions.
func (n *fakeNode) devices(w *world, gpuID string) []resourceapi.Device {
	var all []resourceapi.Device
	var held []string
	if len(n.withheld) > 0 {
		held = n.held(w, gpuID)
	}
	for _, name := range []string{gpuID, gpuID + deviceOf, gpuID + "-mig-1g-10gb-6"} {
		if slices.Contains(n.gone, name) || slices.Contains(n.withheld, gpuID) && !slices.Contains(held, name) {
			continue
		}
		d := resourceapi.Device{
			Name:       name,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: ptr.To("p" + n.applied)}},
		}
		if slices.Contains(n.tainted, gpuID) {
			d.Taints = []resourceapi.DeviceTaint{{Key: names.TaintSwitching, Value: n.value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		all = append(all, d)
	}
	return all
}

// taintedGPUs are the GPUs of a node whose devices are tainted for a switch, as the API
// server has them, and the value of the taint.
func (w *world) taintedGPUs(node string) map[string]string {
	var all resourceapi.ResourceSliceList
	require.NoError(w.t, w.api.List(w.t.Context(), &all))
	out := map[string]string{}
	for i := range all.Items {
		for _, d := range all.Items[i].Spec.Devices {
			for _, taint := range d.Taints {
				if *all.Items[i].Spec.NodeName == node && taint.Key == names.TaintSwitching {
					assert.Equal(w.t, resourceapi.DeviceTaintEffectNoSchedule, taint.Effect)
					out[all.Items[i].Spec.Devices[0].Name] = taint.Value
				}
			}
		}
	}
	return out
}

// publish keeps the node's slices.
func (n *fakeNode) publish(w *world) {
	for _, gpuID := range n.gpus {
		devices := n.devices(w, gpuID)
		if n.wrong {
			devices[0].Name = "wrong"
		}
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
			Name: n.name + "-" + gpuID, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: n.name, UID: types.UID("node-" + n.name)}},
		}}
		s.Spec = resourceapi.ResourceSliceSpec{
			Driver: names.DriverName, NodeName: ptr.To(n.name), Devices: devices,
			Pool: resourceapi.ResourcePool{Name: names.PoolName(n.name), Generation: 1, ResourceSliceCount: int64(len(n.gpus))},
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

func (n *fakeNode) report(w *world) *v1beta1.NodeReport {
	r := &v1beta1.NodeReport{BootID: "boot", GPUCount: int32(len(n.gpus)), AppliedHash: n.applied, OtherSystems: n.owners, InputHash: n.basis, UnhealthyGPUs: n.unhealthy}
	if n.taints != nil {
		r.PublishedTaints = n.taints.DeepCopy()
	}
	for _, gpuID := range n.gpus {
		c := v1beta1.GPUReport{Name: gpuID, Vendor: "nvidia", ProductName: "H100", SliceHash: publish.Digest(n.devices(w, gpuID)), HeldDevices: n.held(w, gpuID)}
		r.GPUs = append(r.GPUs, c)
		r.ClaimCount += int32(len(c.HeldDevices))
	}
	if n.task.SwitchID != "" {
		r.Task = n.task.DeepCopy()
	}
	return r
}

func equalReports(a, b *v1beta1.NodeReport) bool {
	return assert.ObjectsAreEqual(a.DeepCopy(), b.DeepCopy()) || fmt.Sprintf("%+v%+v", *a, a.Task) == fmt.Sprintf("%+v%+v", *b, b.Task)
}
