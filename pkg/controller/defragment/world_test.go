package defragment

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/calls"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	team  = "team-a"
	small = "gpu-mig-1g-10gb.tranche.dev"
	large = "gpu-mig-7g-80gb.tranche.dev"
)

// world is an API server with two nodes of one H100, the scheduler's allocator, and a Defragmenter on a clock
// that stands still.
type world struct {
	t         *testing.T
	api       client.WithWatch
	d         *Defragmenter
	clock     *clocktesting.FakePassiveClock
	events    *events.FakeRecorder
	scheduler *allocator.Scheduler
	grants    map[string]*allocator.Grant
	evicted   []string
	// refuse is what the Eviction API answers, to dry runs if dry is set.
	refuse, refuseDry string
	// keepsEvicted: evicted pods do not end.
	keepsEvicted bool
	// unanswered are the evictions, or their dry runs, that nobody answers, nil: none.
	unanswered *bool
	// onEvict is called for each eviction and dry run.
	onEvict func(ctx context.Context, dry bool)
	// calls are those of the Defragmenter.
	calls calls.Calls
	// fail makes writes of the status of GPUNodes fail.
	fail func(node string) error
	// cached are the GPUNodes of a cache that is late, nil: it is not.
	cached *v1beta1.GPUNodeList
	// listed has what was listed from the API server.
	listed []string
	made   int
	// attempts are those that people have seen, by node, and story has them all.
	attempts map[string]string
	story    strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, resourceapi.AddToScheme, v1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	byNode := func(o client.Object) []string {
		return []string{ptr.Deref(o.(*resourceapi.ResourceSlice).Spec.NodeName, "")}
	}
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(2e9, 0)), events: events.NewFakeRecorder(100), grants: map[string]*allocator.Grant{},
		attempts: map[string]string{},
	}
	t.Cleanup(func() {
		if len(w.attempts) > 0 {
			golden.Equal(t, filepath.Join("testdata", strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+".txt"), w.story.String())
		}
	})
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta1.GPUNode{}).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorNodeName, byNode).
		WithIndex(&resourceapi.ResourceClaim{}, drain.NodeIndex, drain.NodesOf).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).Build()
	classes, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	for _, c := range classes {
		w.create(c.DeepCopy())
	}
	w.scheduler = allocator.New(classes, nil)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{names.LabelDefragmentation: names.ValueTrue}}})
	for i := range 2 {
		w.node(fmt.Sprintf("node-%d", i))
	}
	for _, class := range []string{small, large} {
		w.create(&resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: class},
			Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: allocator.Claim("", allocator.Request("gpu", class, 1)).Spec},
		})
	}
	w.start()
	return w
}

// start starts a Defragmenter that knows nothing.
func (w *world) start() {
	cache := interceptor.NewClient(w.calls.Client(w.api), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if nodes, ok := list.(*v1beta1.GPUNodeList); ok && w.cached != nil {
				w.cached.DeepCopyInto(nodes)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if w.fail != nil {
				if err := w.fail(o.GetName()); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	reader := interceptor.NewClient(w.calls.Client(w.api), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			selected := ""
			if o.FieldSelector != nil {
				selected = o.FieldSelector.String()
			}
			w.listed = append(w.listed, fmt.Sprintf("%T %s %s", list, o.Namespace, selected))
			return c.List(ctx, list, opts...)
		},
	})
	w.d = New(cache, reader, w.events, Options{After: time.Minute, MaxPods: 2, PerHour: 3, Clock: w.clock, Registry: prometheus.NewRegistry()})
	w.d.Evict = w.evict
}

func (w *world) evict(ctx context.Context, pod *drain.Pod, dry bool) (string, error) {
	if w.onEvict != nil {
		w.onEvict(ctx, dry)
	}
	if w.unanswered != nil && *w.unanswered == dry {
		return "", assert.AnError
	}
	if dry {
		return w.refuseDry, nil
	}
	if w.refuse == "" {
		w.evicted = append(w.evicted, pod.Name)
		if w.get(pod.Name) != nil && !w.keepsEvicted {
			w.remove(pod.Name)
		}
	}
	return w.refuse, nil
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	o.SetResourceVersion("")
	require.NoError(w.t, w.api.Create(w.t.Context(), o))
}

// scatter makes small pods on both nodes, and a pod that waits for a whole GPU: the second node has
// fewer pods.
func (w *world) scatter() (waiting string) {
	w.t.Helper()
	w.pod(small, "node-0")
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	return w.pod(large, "")
}

func (w *world) node(name string) {
	w.t.Helper()
	published, err := nodes.OfModel(name, "H100-80GB", 1)
	require.NoError(w.t, err)
	for i, s := range published {
		s = s.DeepCopy()
		s.Name = fmt.Sprintf("%s-%d", name, i)
		w.create(s)
	}
	w.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}},
	})
	w.create(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.publish()
}

// publish gives the scheduler the slices.
func (w *world) publish() {
	w.t.Helper()
	var list resourceapi.ResourceSliceList
	require.NoError(w.t, w.api.List(w.t.Context(), &list))
	var all []*resourceapi.ResourceSlice
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	w.scheduler.Publish(all)
}

// taint does what the plugin of a node does for a reservation.
func (w *world) taint(node string) {
	w.t.Helper()
	a := w.attempt(node)
	var list resourceapi.ResourceSliceList
	require.NoError(w.t, w.api.List(w.t.Context(), &list, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: node}))
	for i := range list.Items {
		s := &list.Items[i]
		for j := range s.Spec.Devices {
			s.Spec.Devices[j].Taints = nil
			if a.Active(w.clock.Now()) && slices.Contains(a.ReservedDevices, s.Spec.Devices[j].Name) {
				s.Spec.Devices[j].Taints = []resourceapi.DeviceTaint{{Key: names.TaintReserved, Value: a.ID, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			}
		}
		require.NoError(w.t, w.api.Update(w.t.Context(), s))
	}
	w.publish()
}

// evicts publishes the taints of the attempt on a node, and lets it evict its first pod.
func (w *world) evicts(node string) {
	w.t.Helper()
	w.taint(node)
	w.pass(time.Second)
	require.True(w.t, w.pass(3*time.Second))
}

// pod makes a pod of a ReplicaSet that asks for a device of a class. It runs on a node, or waits.
func (w *world) pod(class, node string) string {
	w.t.Helper()
	name := fmt.Sprintf("pod-%d", w.made)
	w.made++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(w.clock.Now()),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: class, UID: types.UID(class), Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "main", Image: "busybox"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &class}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}},
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(w.clock.Now()),
			}},
		},
	}
	claim := allocator.Claim(name, allocator.Request("gpu", class, 1))
	claim.Namespace, claim.UID = team, types.UID("claim-"+name)
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: ptr.To(true)}}
	w.create(pod)
	w.create(claim)
	if node != "" {
		require.True(w.t, w.bind(name, node), "%s does not fit on %s", class, node)
	}
	return name
}

// podIn moves a waiting pod to another namespace, with its claim and a template.
func (w *world) podIn(namespace, class string) string {
	w.t.Helper()
	name := w.pod(class, "")
	pod, key := w.get(name), types.NamespacedName{Namespace: team, Name: name}
	var claim resourceapi.ResourceClaim
	require.NoError(w.t, w.api.Get(w.t.Context(), key, &claim))
	w.remove(name)
	pod.Namespace, claim.Namespace = namespace, namespace
	w.create(pod)
	w.create(&claim)
	return name
}

// bind schedules a pod to a node, if it fits.
func (w *world) bind(name, node string) bool {
	w.t.Helper()
	key := types.NamespacedName{Namespace: team, Name: name}
	var claim resourceapi.ResourceClaim
	require.NoError(w.t, w.api.Get(w.t.Context(), key, &claim))
	grant, err := w.scheduler.Allocate(w.t.Context(), node, &claim)
	require.NoError(w.t, err)
	if grant == nil {
		return false
	}
	w.grants[name] = grant
	claim.Status.Allocation = &grant.Result
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("uid-" + name)}}
	require.NoError(w.t, w.api.Update(w.t.Context(), &claim))
	pod := w.get(name)
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions = node, corev1.PodRunning, nil
	require.NoError(w.t, w.api.Update(w.t.Context(), pod))
	return true
}

// get is a pod, nil if it is gone.
func (w *world) get(name string) *corev1.Pod {
	var pod corev1.Pod
	if w.api.Get(w.t.Context(), types.NamespacedName{Namespace: team, Name: name}, &pod) != nil {
		return nil
	}
	return &pod
}

func (w *world) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, w.api.Delete(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}))
	w.release(name)
}

// release deletes the claim of a pod.
func (w *world) release(name string) {
	w.t.Helper()
	require.NoError(w.t, w.api.Delete(w.t.Context(), &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}))
	if w.grants[name] != nil {
		w.scheduler.Release(w.grants[name])
	}
}

// change changes the attempt on a node.
func (w *world) change(node string, change func(*v1beta1.Defragmentation)) {
	w.t.Helper()
	var n v1beta1.GPUNode
	require.NoError(w.t, w.api.Get(w.t.Context(), types.NamespacedName{Name: node}, &n))
	if n.Status.Defragmentation == nil {
		n.Status.Defragmentation = &v1beta1.Defragmentation{}
	}
	change(n.Status.Defragmentation)
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), &n))
}

// pin makes a pod run on one node only.
func (w *world) pin(name, node string) {
	w.t.Helper()
	pod := w.get(name)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	require.NoError(w.t, w.api.Update(w.t.Context(), pod))
}

func (w *world) attempt(node string) *v1beta1.Defragmentation {
	w.t.Helper()
	var n v1beta1.GPUNode
	require.NoError(w.t, w.api.Get(w.t.Context(), types.NamespacedName{Name: node}, &n))
	return n.Status.Defragmentation
}

// pass lets time pass, and steps.
func (w *world) pass(d time.Duration) (busy bool) {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(d))
	busy, err := w.d.Step(w.t.Context())
	require.NoError(w.t, err)
	w.tell(d)
	return busy
}

// tell adds the attempts that have changed to the story, and the events.
func (w *world) tell(after time.Duration) {
	w.t.Helper()
	fmt.Fprintf(&w.story, "after %s\n", after)
	for len(w.events.Events) > 0 {
		fmt.Fprintf(&w.story, "  %s\n", <-w.events.Events)
	}
	var all v1beta1.GPUNodeList
	require.NoError(w.t, w.api.List(w.t.Context(), &all))
	for i := range all.Items {
		a := all.Items[i].Status.Defragmentation
		if a == nil {
			continue
		}
		a.ID, a.ReservedDevices = "", nil
		data, err := json.Marshal(a)
		require.NoError(w.t, err)
		if name := all.Items[i].Name; w.attempts[name] != string(data) {
			w.attempts[name] = string(data)
			fmt.Fprintf(&w.story, "  %s %s\n", name, data)
		}
	}
}
