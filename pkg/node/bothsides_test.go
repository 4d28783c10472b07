package node

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// both is a machine whose plugin is steered by the real controller. The test is the
// scheduler, the kubelet and the pods.
type both struct {
	*steered
	k *kubelet
	// objects are all that the controller reads but GPUNodes and slices.
	objects client.WithWatch
	r       *controller.Reconciler

	// mu protects what follows.
	mu sync.Mutex
	// evicted are the pods that were asked to leave, in order.
	evicted []string
	// slow pods end when the test says so.
	slow map[string]chan struct{}
	// last is what the controller complained of last.
	last error
}

// steerBoth starts the plugin and the controller.
func steerBoth(s *steered) *both {
	s.t.Helper()
	scheme, err := controller.NewScheme()
	require.NoError(s.t, err)
	b := &both{steered: s, slow: map[string]chan struct{}{}}
	s.config.taintSettle = 10 * nodetest.Tick
	b.k, _ = s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	b.objects = ctrlfake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&resourceapi.ResourceClaim{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "node-uid"}}).Build()
	c := interceptor.NewClient(b.objects, interceptor.Funcs{Get: b.read, List: b.list, SubResourcePatch: b.patchStatus, SubResourceCreate: b.evict})
	b.r, err = controller.New(c, c, controller.Options{
		MaxUnavailable: "1", Deadlines: state.DefaultDeadlines(), Registry: prometheus.NewRegistry(),
	}, func(string, bool) {}, func() {})
	require.NoError(s.t, err)
	b.r.Events = events.NewFakeRecorder(10000)
	b.r.Plans.Events = b.r.Events
	b.runController()
	return b
}

// runController looks at the node again and again until the test ends.
func (b *both) runController() {
	ctx, cancel := context.WithCancel(nodetest.Quiet(context.Background()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, err := b.r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: nodetest.NodeName}})
			if _, plans := b.r.Plans.Decide(ctx); err == nil {
				err = plans
			}
			b.mu.Lock()
			b.last = cmp.Or(err, b.last)
			b.mu.Unlock()
			select {
			case <-time.After(nodetest.Tick):
			case <-ctx.Done():
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-ended })
}

// read has the GPUNode that the plugin has.
func (b *both) read(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	gpuNode, ok := o.(*v1alpha1.GPUNode)
	if !ok {
		return c.Get(ctx, key, o, opts...)
	}
	b.written.Lock()
	defer b.written.Unlock()
	found, err := b.get()
	if err == nil {
		found.DeepCopyInto(gpuNode)
	}
	return err
}

// list has the GPUNode and the slices that the plugin has, and of claims all: the
// controller looks itself whose they are.
func (b *both) list(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
	switch l := l.(type) {
	case *v1alpha1.GPUNodeList:
		var n v1alpha1.GPUNode
		err := b.read(ctx, c, client.ObjectKey{Name: nodetest.NodeName}, &n)
		l.Items = []v1alpha1.GPUNode{n}
		return err
	case *resourceapi.ResourceSliceList:
		found, err := b.api.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err == nil {
			found.DeepCopyInto(l)
		}
		return err
	case *resourceapi.ResourceClaimList:
		return c.List(ctx, l)
	}
	return c.List(ctx, l, opts...)
}

// patchStatus merges what the controller writes into the GPUNode, unless somebody has
// written since it was read.
func (b *both) patchStatus(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	gpuNode, ok := o.(*v1alpha1.GPUNode)
	if !ok {
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}
	patch, err := p.Data(o)
	if err != nil {
		return err
	}
	var said struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &said); err != nil {
		return err
	}
	b.written.Lock()
	defer b.written.Unlock()
	now, err := b.get()
	if err != nil {
		return err
	}
	if v := said.Metadata.ResourceVersion; v != "" && v != now.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("gpunodes").GroupResource(), nodetest.NodeName, nil)
	}
	merged, err := b.nodes.GPUNodes().Patch(ctx, nodetest.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if err := b.update(merged); err != nil {
		return err
	}
	merged.DeepCopyInto(gpuNode)
	return nil
}

// evict asks a pod to leave. It ends as the kubelet ends pods, and a pod in its place
// looks for a device.
func (b *both) evict(ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
	if sub != "eviction" {
		return c.SubResource(sub).Create(ctx, o, body, opts...)
	}
	var pod corev1.Pod
	if err := b.objects.Get(ctx, client.ObjectKeyFromObject(o), &pod); err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil || slices.Contains(body.(*policyv1.Eviction).DeleteOptions.DryRun, metav1.DryRunAll) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evicted = append(b.evicted, pod.Name)
	go b.end(pod.DeepCopy(), b.slow[pod.Name])
	return b.objects.Delete(ctx, &pod)
}

// end ends a pod.
func (b *both) end(pod *corev1.Pod, may <-chan struct{}) {
	if may != nil {
		<-may
	}
	ctx := context.Background()
	assert.Eventually(b.t, func() bool {
		err := b.objects.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return err == nil && pod.DeletionTimestamp != nil
	}, nodetest.Patience, time.Millisecond)
	claim := &resourceapi.ResourceClaim{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: "claim-" + pod.Name}
	if err := b.objects.Get(ctx, key, claim); err != nil {
		return
	}
	assert.Empty(b.t, b.k.unprepare(claim))
	assert.NoError(b.t, b.objects.Delete(ctx, claim))
	pod.Finalizers = nil
	assert.NoError(b.t, b.objects.Update(ctx, pod))
	go b.schedule(pod.Name+"-again", kindOf(claim.Status.Allocation.Devices.Results[0].Device))
}

// kindOf is the part of a device's name that says what it is: "-mig-1g-10gb-".
func kindOf(device string) string {
	name := strings.TrimRight(device, "0123456789")
	return name[strings.Index(name, "-0-")+2:]
}

// schedule places a pod on the first device of its kind that can be had, as soon as
// there is one.
func (b *both) schedule(name, kind string) {
	for b.t.Context().Err() == nil {
		var claims resourceapi.ResourceClaimList
		if err := b.objects.List(context.Background(), &claims); err != nil {
			return
		}
		taken := func(device string) bool {
			return slices.ContainsFunc(claims.Items, func(c resourceapi.ResourceClaim) bool {
				return c.Status.Allocation.Devices.Results[0].Device == device
			})
		}
		list, err := b.api.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return
		}
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				if strings.Contains(d.Name, kind) && len(d.Taints) == 0 && !taken(d.Name) && !strings.HasSuffix(d.Name, "-share") {
					b.run(name, d.Name)
					return
				}
			}
		}
		time.Sleep(nodetest.Tick)
	}
}

// run runs a pod that has a device.
func (b *both) run(name, device string) {
	c := nodetest.Allocate(b.t, b.api, name, device)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, UID: types.UID("pod-" + name), Finalizers: []string{"tranche.dev/kubelet"}}}
	pod.Spec.NodeName = nodetest.NodeName
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}
	ctx := context.Background()
	for _, o := range []client.Object{pod, c.DeepCopy()} {
		assert.NoError(b.t, b.objects.Create(ctx, o))
	}
	stored := &resourceapi.ResourceClaim{}
	assert.NoError(b.t, b.objects.Get(ctx, client.ObjectKeyFromObject(c), stored))
	stored.Status = c.Status
	assert.NoError(b.t, b.objects.Status().Update(ctx, stored))
	b.k.prepare(c)
}

// profile makes a PartitionProfile, or changes it, and gives it to the node.
func (b *both) profile(name, rules string) {
	b.t.Helper()
	p := &v1alpha1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := b.objects.Get(b.t.Context(), client.ObjectKeyFromObject(p), p)
	require.NoError(b.t, client.IgnoreNotFound(err))
	p.Spec.Rules = nil
	require.NoError(b.t, yaml.UnmarshalStrict([]byte(rules), &p.Spec.Rules))
	if err == nil {
		require.NoError(b.t, b.objects.Update(b.t.Context(), p))
	} else {
		require.NoError(b.t, b.objects.Create(b.t.Context(), p))
	}
	var n corev1.Node
	require.NoError(b.t, b.objects.Get(b.t.Context(), client.ObjectKey{Name: nodetest.NodeName}, &n))
	metav1.SetMetaDataLabel(&n.ObjectMeta, names.LabelProfile, name)
	require.NoError(b.t, b.objects.Update(b.t.Context(), &n))
}

// until waits until the GPUNode's status is as a test wants it.
func (b *both) until(what string, ok func(*v1alpha1.GPUNodeStatus) bool) *v1alpha1.GPUNodeStatus {
	b.t.Helper()
	var last *v1alpha1.GPUNode
	if !assert.Eventually(b.t, func() bool {
		last, _ = b.get()
		return last != nil && ok(&last.Status)
	}, 2*nodetest.Patience, nodetest.Tick, what) {
		text, _ := yaml.Marshal(last.Status)
		b.mu.Lock()
		defer b.mu.Unlock()
		require.FailNow(b.t, "it stays so", "%s\nevicted: %v\nthe controller: %v", text, b.evicted, b.last)
	}
	return &last.Status
}

// follows waits until the node follows a profile, and checks that it took one switch
// and only one eviction.
func (b *both) follows(profile string) {
	b.t.Helper()
	status := b.until("it does not follow the profile", func(s *v1alpha1.GPUNodeStatus) bool {
		return s.State == v1alpha1.Idle && s.Applied != nil && s.Applied.Profile == profile && s.Desired != nil && s.Desired.Hash == s.Applied.Hash
	})
	var switches []string
	for _, r := range status.History {
		if r.To == profile {
			switches = append(switches, r.Result+" "+r.Reason+" "+r.Message)
		}
	}
	assert.Equal(b.t, []string{"Succeeded  "}, switches)
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(b.t, []string{"a"}, b.evicted)
}

// untaintedAgain waits until no device has the taint of a switch.
func (b *both) untaintedAgain() {
	b.t.Helper()
	awaitDevices(b.t, b.api, false, func(d resourceapi.Device) bool { return repartitioning(&d) == "" })
}

// The pod that is displaced is not scheduled to the other GPU, which needs no change but
// is about to lose such devices; it would switch that GPU's MIG mode on.
func TestDisplacedPodStaysOffASibling(t *testing.T) {
	b := steerBoth(steer(newMachine(t, nodetest.NewAPI())))
	b.run("a", small0)
	b.profile("whole", wholeOnly)
	b.follows("whole")
	b.untaintedAgain()
	assert.Empty(t, b.partitions())
	report := b.await("a GPU has MIG on", func(r *v1alpha1.NodeReport) bool { return r.GPUs[0].Mode == "MIG off" })
	assert.Equal(t, "MIG off", report.GPUs[1].Mode)
	assert.Zero(t, report.Held)
}

// So it is with AMD's compute modes.
func TestDisplacedPodStaysOffAnAMDSibling(t *testing.T) {
	b := steerBoth(steer(newAMDMachine(t, nodetest.NewAPI())))
	b.run("a", cpx3)
	b.profile("spx", "[{amd: {computePartition: SPX}}]")
	b.follows("spx")
	b.untaintedAgain()
	report := b.await("a GPU is still cut", func(r *v1alpha1.NodeReport) bool { return r.GPUs[0].Mode == "SPX NPS1" })
	assert.Equal(t, "SPX NPS1", report.GPUs[1].Mode)
	assert.Zero(t, report.Held)
}

// A profile that is edited in the middle of a drain keeps the taints, and nobody else is
// evicted for it.
func TestProfileIsEditedWhileAPodLeaves(t *testing.T) {
	b := steerBoth(steer(newMachine(t, nodetest.NewAPI())))
	b.run("a", small0)
	may := make(chan struct{})
	b.slow["a"] = may
	b.profile("whole", wholeOnly)
	b.until("it does not drain", func(s *v1alpha1.GPUNodeStatus) bool { return s.State == v1alpha1.Draining && s.Switch.Evicted == 1 })
	var mu sync.Mutex
	leaving, untainted := true, []string(nil)
	onSliceWrite(b.api, func(slice *resourceapi.ResourceSlice) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; leaving && strings.HasPrefix(d.Name, card0) && repartitioning(d) == "" {
				untainted = append(untainted, d.Name)
			}
		}
		return nil
	})
	first := b.until("", func(*v1alpha1.GPUNodeStatus) bool { return true }).Switch
	b.profile("whole", "[{mig: {mode: Disabled}, sharing: {replicas: 4}}]")
	b.until("it does not drain for the edited profile", func(s *v1alpha1.GPUNodeStatus) bool {
		return s.State == v1alpha1.Draining && s.Switch.ID != first.ID && s.Switch.To.Hash != first.To.Hash
	})
	mu.Lock()
	leaving = false
	mu.Unlock()
	assert.Empty(t, untainted, "there was a moment without the taints")
	close(may)
	status := b.until("it does not follow the edited profile", func(s *v1alpha1.GPUNodeStatus) bool {
		return s.State == v1alpha1.Idle && s.Applied != nil && s.Applied.Hash == s.Desired.Hash && s.Applied.Hash != first.To.Hash
	})
	assert.Equal(t, v1alpha1.ResultSucceeded, status.History[0].Result)
	b.untaintedAgain()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(t, []string{"a"}, b.evicted)
}
