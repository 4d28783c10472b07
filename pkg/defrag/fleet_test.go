package defrag_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	team  = "team-a"
	whole = "gpu.tranche.dev"
	one   = "gpu-mig-1g-10gb.tranche.dev"
	two   = "gpu-mig-2g-20gb.tranche.dev"
	three = "gpu-mig-3g-40gb.tranche.dev"
	seven = "gpu-mig-7g-80gb.tranche.dev"
)

// The models of GPUs.
const (
	h100   = "H100-80GB"
	mi300x = "MI300X"
)

// compiled are the selectors of all tests.
var compiled = sync.OnceValue(func() *cel.Cache { return allocation.NewCache(200) })

// published are the slices of a node with so many GPUs of a model, made once.
var published = struct {
	sync.Mutex
	of map[string][]*resourceapi.ResourceSlice
}{of: map[string][]*resourceapi.ResourceSlice{}}

func slicesOf(t testing.TB, node, model string, gpus int) []*resourceapi.ResourceSlice {
	t.Helper()
	published.Lock()
	defer published.Unlock()
	key := fmt.Sprint(node, model, gpus)
	if published.of[key] == nil {
		var err error
		published.of[key], err = nodes.OfModel(node, model, gpus)
		require.NoError(t, err)
	}
	return published.of[key]
}

// fleet is a cluster in memory. The scheduler's allocator places its pods.
type fleet struct {
	t         testing.TB
	in        defrag.Input
	scheduler *allocator.Scheduler
	slices    []*resourceapi.ResourceSlice
	pods      map[string]*corev1.Pod
	claims    map[string]*resourceapi.ResourceClaim
	grants    map[string]*allocator.Grant
	made      int
}

// newFleet makes nodes named node-0, node-1, … with so many H100 each.
func newFleet(t testing.TB, gpus ...int) *fleet {
	t.Helper()
	return newFleetOf(t, h100, gpus...)
}

func newFleetOf(t testing.TB, model string, gpus ...int) *fleet {
	t.Helper()
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	f := &fleet{
		t: t, scheduler: allocator.New(classes, nil),
		pods: map[string]*corev1.Pod{}, claims: map[string]*resourceapi.ResourceClaim{}, grants: map[string]*allocator.Grant{},
	}
	f.scheduler.Compiled = compiled()
	f.in.Compiled, f.in.Now = compiled(), time.Date(2026, 11, 20, 3, 14, 0, 0, time.UTC)
	for _, c := range classes {
		f.in.Classes = append(f.in.Classes, *c)
	}
	f.in.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{names.LabelDefragmentation: names.ValueTrue}}}}
	for i, n := range gpus {
		name := fmt.Sprintf("node-%d", i)
		f.slices = append(f.slices, slicesOf(t, name, model, n)...)
		f.in.Nodes = append(f.in.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourcePods: resource.MustParse("110")}},
		})
	}
	f.scheduler.Publish(f.slices)
	return f
}

// add makes a pod of a ReplicaSet that waits for devices of a class.
func (f *fleet) add(class string, count int64, change ...func(*corev1.Pod)) string {
	name := fmt.Sprintf("pod-%d", f.made)
	f.made++
	template := fmt.Sprintf("%s-%d", class, count)
	claim := allocator.Claim(name+"-gpu", allocator.Request("gpu", class, count))
	if !slices.ContainsFunc(f.in.Templates, func(t resourceapi.ResourceClaimTemplate) bool { return t.Name == template }) {
		f.in.Templates = append(f.in.Templates, resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: template}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec},
		})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "uid-set", Controller: ptr.To(true)},
		}},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "main"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim.Name}}},
	}
	for _, f := range change {
		f(pod)
	}
	claim.Namespace, claim.UID = team, types.UID("uid-"+claim.Name)
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: ptr.To(true)}}
	f.pods[name], f.claims[name] = pod, claim
	return name
}

// bind places a pod on a node, if it fits there.
func (f *fleet) bind(name, node string) bool {
	f.t.Helper()
	grant, err := f.scheduler.Allocate(f.t.Context(), node, f.claims[name])
	require.NoError(f.t, err)
	if grant == nil {
		return false
	}
	f.grants[name] = grant
	f.claims[name].Status.Allocation = &grant.Result
	f.claims[name].Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: f.pods[name].UID}}
	f.pods[name].Spec.NodeName, f.pods[name].Status.Phase = node, corev1.PodRunning
	return true
}

// run adds a pod and places it on a node.
func (f *fleet) run(node, class string, change ...func(*corev1.Pod)) string {
	f.t.Helper()
	name := f.add(class, 1, change...)
	require.True(f.t, f.bind(name, node), "%s does not fit on %s", class, node)
	return name
}

// remove deletes a pod and releases its claim.
func (f *fleet) remove(names ...string) {
	for _, name := range names {
		if f.grants[name] != nil {
			f.scheduler.Release(f.grants[name])
		}
		delete(f.pods, name)
		delete(f.claims, name)
		delete(f.grants, name)
	}
}

// input is what the API server has.
func (f *fleet) input() *defrag.Input {
	in := f.in
	in.Claims, in.Pods, in.Slices = []resourceapi.ResourceClaim{}, nil, nil
	for _, s := range f.slices {
		in.Slices = append(in.Slices, *s)
	}
	for _, name := range slices.Sorted(maps.Keys(f.pods)) {
		in.Pods = append(in.Pods, *f.pods[name])
		in.Claims = append(in.Claims, *f.claims[name])
	}
	return &in
}

func (f *fleet) planner(o defrag.Options) *defrag.Planner {
	f.t.Helper()
	o.MaxPods = cmp.Or(o.MaxPods, 4)
	p, err := defrag.New(f.input(), o)
	require.NoError(f.t, err)
	return p
}

// plan looks for a plan, and returns the refusal if there is none.
func (f *fleet) plan(pod string, o defrag.Options) (*defrag.Plan, *defrag.Refusal) {
	f.t.Helper()
	plan, err := f.planner(o).Plan(f.t.Context(), f.pods[pod])
	if err == nil {
		require.NotNil(f.t, plan)
		return plan, nil
	}
	var refusal *defrag.Refusal
	require.ErrorAs(f.t, err, &refusal)
	require.Nil(f.t, plan)
	return nil, refusal
}

// reserve taints the devices that overlap those of a plan, as the plugin does.
func (f *fleet) reserve(plan *defrag.Plan) {
	f.t.Helper()
	overlapping := f.planner(defrag.Options{}).Overlapping(plan)
	require.NotEmpty(f.t, overlapping)
	tainted := make([]*resourceapi.ResourceSlice, len(f.slices))
	for i, s := range f.slices {
		tainted[i] = s
		if *s.Spec.NodeName != plan.Node {
			continue
		}
		tainted[i] = s.DeepCopy()
		for j := range tainted[i].Spec.Devices {
			d := &tainted[i].Spec.Devices[j]
			if slices.Contains(overlapping, defrag.Device{Pool: s.Spec.Pool.Name, Device: d.Name}) {
				d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: names.TaintReserved, Value: "x", Effect: resourceapi.DeviceTaintEffectNoSchedule})
			}
		}
	}
	f.slices = tainted
	f.scheduler.Publish(tainted)
}

func (f *fleet) devices(pod string) (out []defrag.Device) {
	for _, r := range f.grants[pod].Result.Devices.Results {
		out = append(out, defrag.Device{Pool: r.Pool, Device: r.Device})
	}
	return out
}
