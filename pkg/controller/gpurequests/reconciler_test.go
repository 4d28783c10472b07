package gpurequests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

const team = "team-a"

var catalog = noderesources.NewCatalog()

func class(name, extended, expression string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	if extended != "" {
		c.Spec.ExtendedResourceName = ptr.To(extended)
	}
	return c
}

const (
	isMIG = `device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?type.orValue("") == "mig" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`
	isGPU = `device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?type.orValue("") == "gpu"`
)

func namespace(value string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	if value != "" {
		n.Labels = map[string]string{names.LabelRequestGPUResources: value}
	}
	return n
}

func template(name, class string, count int64) *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	t.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{
		Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Count: count, AllocationMode: resourceapi.DeviceAllocationModeExactCount},
	}}
	return t
}

// world reconciles against objects.
type world struct {
	t *testing.T
	r *Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, resourceapi.AddToScheme, v1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return &world{t, &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Catalog: catalog, Clock: clock.RealClock{}, Events: events.NewFakeRecorder(10)}}
}

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: team}})
	require.NoError(w.t, err)
	return result
}

// spec is what the map of the namespace has, nil if there is none.
func (w *world) spec() *v1beta1.GPUResourceMapSpec {
	w.t.Helper()
	m := &v1beta1.GPUResourceMap{}
	err := w.r.Client.Get(w.t.Context(), client.ObjectKey{Namespace: team, Name: names.GPUResourceMapName}, m)
	if err != nil {
		require.NoError(w.t, client.IgnoreNotFound(err))
		return nil
	}
	return &m.Spec
}

func TestMapFollowsTemplatesClassesAndNodes(t *testing.T) {
	one := v1beta1.GPUResources{MemoryMiB: 9728, Compute: 142}
	w := newWorld(t, namespace("true"), class("small", "nvidia.com/mig-1g.10gb", isMIG), class("whole", "", isGPU), class("other", "example.com/nic", `device.driver == "example.com"`),
		template("train", "small", 2), template("all", "whole", 1), template("unknown", "none", 1), template("nic", "other", 1))
	assert.Zero(t, w.reconcile())
	assert.Equal(t, &v1beta1.GPUResourceMapSpec{
		Templates: map[string]v1beta1.GPUResources{"train": {MemoryMiB: 19456, Compute: 284}, "all": {Compute: 1000}},
		ExtendedResources: map[string]v1beta1.GPUResources{
			"nvidia.com/mig-1g.10gb": one, "deviceclass.resource.kubernetes.io/small": one, "deviceclass.resource.kubernetes.io/whole": {Compute: 1000},
		},
	}, w.spec())

	require.NoError(t, w.r.Client.Delete(t.Context(), template("all", "whole", 1)))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}}}
	require.NoError(t, w.r.Client.Create(t.Context(), node))
	w.reconcile()
	assert.NotContains(t, w.spec().Templates, "all")
	assert.NotContains(t, w.spec().ExtendedResources, "nvidia.com/mig-1g.10gb", "its pods can run where a device plugin serves it")
}

func TestWhichNamespaces(t *testing.T) {
	for _, tt := range []struct {
		label string
		all   bool
		want  bool
	}{{"", false, false}, {"true", false, true}, {"false", false, false}, {"yes", false, false}, {"", true, true}, {"true", true, true}, {"false", true, false}} {
		old := &v1beta1.GPUResourceMap{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: names.GPUResourceMapName}}
		for _, objects := range [][]client.Object{{namespace(tt.label)}, {namespace(tt.label), old}} {
			w := newWorld(t, objects...)
			w.r.AllNamespaces = tt.all
			w.reconcile()
			assert.Equal(t, tt.want, w.spec() != nil, "%+v", tt)
		}
	}
}

// What nobody can have does not keep the API server from accepting the map.
func TestAmountsHaveBounds(t *testing.T) {
	huge := template("huge", "whole", 1<<62)
	for i := range 31 {
		more := huge.Spec.Spec.Devices.Requests[0]
		more.Name = fmt.Sprint("gpu-", i)
		huge.Spec.Spec.Devices.Requests = append(huge.Spec.Spec.Devices.Requests, more)
	}
	w := newWorld(t, namespace("true"), class("whole", "", isGPU), huge)
	w.reconcile()
	assert.Equal(t, map[string]v1beta1.GPUResources{"huge": {Compute: v1beta1.MaxMappedCompute}}, w.spec().Templates)
}

// Of too many classes, always the same are left out.
func TestTooManyClasses(t *testing.T) {
	objects := []client.Object{namespace("true")}
	for i := range v1beta1.MaxMappedResources {
		objects = append(objects, class(fmt.Sprintf("class-%03d", i), fmt.Sprintf("example.com/gpu-%03d", i), isMIG))
	}
	w := newWorld(t, objects...)
	w.reconcile()
	all := w.spec().ExtendedResources
	assert.Len(t, all, v1beta1.MaxMappedResources)
	assert.Contains(t, all, "example.com/gpu-255")
	assert.NotContains(t, all, "example.com/gpu-256")
}

// Evaluating selectors of one namespace does not keep others waiting: it continues later.
func TestTurns(t *testing.T) {
	newer := template("b", "whole", 1)
	newer.CreationTimestamp = metav1.Now()
	w := newWorld(t, namespace("true"), class("whole", "", isGPU), template("a", "whole", 1), newer)
	// Each look at the clock takes most of a turn.
	now := time.Now()
	w.r.Clock = &clocktesting.SimpleIntervalClock{Time: now, Duration: turn*2/3 + 1}
	assert.NotZero(t, w.reconcile().RequeueAfter)
	assert.Len(t, w.spec().Templates, 1)
	assert.Contains(t, w.spec().Templates, "b", "pods name new ones soonest")
	w.r.Clock = clock.RealClock{}
	assert.Zero(t, w.reconcile())
	assert.Len(t, w.spec().Templates, 2)
}

func TestTrimmedTemplate(t *testing.T) {
	full := template("train", "small", 1)
	full.Annotations, full.Labels = map[string]string{"a": "b"}, map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}
	full.Spec.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{}}
	got, err := trimTemplate(full.DeepCopy())
	require.NoError(t, err)
	trimmed := got.(*resourceapi.ResourceClaimTemplate)
	assert.Equal(t, full.Spec.Spec.Devices.Requests, trimmed.Spec.Spec.Devices.Requests)
	assert.Equal(t, full.Labels, trimmed.Labels, "claimtemplates reads them")
	assert.Empty(t, trimmed.Annotations)
	assert.Empty(t, trimmed.Spec.Spec.Devices.Config)
}

// A label that means nothing is told once, in both modes.
func TestLabelThatMeansNothing(t *testing.T) {
	for _, all := range []bool{false, true} {
		for value, told := range map[string]int{"": 0, "true": 0, "false": 0, "True": 1} {
			w := newWorld(t, namespace(value))
			w.r.AllNamespaces = all
			w.reconcile()
			w.reconcile()
			recorded := w.r.Events.(*events.FakeRecorder).Events
			require.Len(t, recorded, told, value)
			if told > 0 {
				assert.Equal(t, "Warning LabelIgnored The label tranche.dev/request-gpu-resources=True of this namespace has no effect: the value can be true, false", <-recorded)
			}
		}
	}
}

// nvidia.com/gpu counts as a whole GPU unless it can be less by what any node follows, or by another
// class. Profiles that no node follows do not count.
func TestVendorsExtendedResource(t *testing.T) {
	byVendor := class("gpu-extended-nvidia.tranche.dev", "nvidia.com/gpu", `device.attributes["gpu.tranche.dev"].?extendedResourceName.orValue("") == "nvidia.com/gpu"`)
	rules := func(device v1beta1.ExtendedResourceDevice, vendor gpu.Vendor) []v1beta1.Rule {
		if device == "" {
			return []v1beta1.Rule{{}}
		}
		return []v1beta1.Rule{{}, {GPUs: &v1beta1.GPUSelector{Vendor: string(vendor)}, ExtendedResource: &v1beta1.ExtendedResource{Device: device}}}
	}
	unused := &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "unused"}}
	unused.Spec.Rules = rules(v1beta1.DeviceGPUReplica, "")
	follows := func(applied, desired v1beta1.ProfileSnapshot) *v1beta1.GPUNode {
		n := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		n.Status.Applied, n.Status.Desired = &applied, &desired
		return n
	}
	of := func(device v1beta1.ExtendedResourceDevice, vendor gpu.Vendor) v1beta1.ProfileSnapshot {
		return profile.Snapshot("p", rules(device, vendor))
	}
	later := of("", "")
	later.RulesVersion = "v9"
	for name, test := range map[string]struct {
		object client.Object
		whole  bool
	}{
		"a profile without nodes":  {unused, true},
		"silent":                   {follows(of("", ""), of("", "")), true},
		"whole GPUs":               {follows(of("", ""), of(v1beta1.DeviceGPU, "")), true},
		"the other vendor's":       {follows(of(v1beta1.DevicePartition, gpu.AMD), of("", "")), true},
		"applied":                  {follows(of(v1beta1.DevicePartition, gpu.NVIDIA), of("", "")), false},
		"about to be applied":      {follows(of("", ""), of(v1beta1.DeviceAuto, "")), false},
		"rules of another version": {follows(of("", ""), later), false},
		"another driver's class":   {class("other", "nvidia.com/gpu", `device.driver == "gpu.nvidia.com"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.object, namespace("true"), byVendor)
			w.reconcile()
			want := v1beta1.GPUResources{}
			if test.whole {
				want.Compute = 1000
			}
			assert.Equal(t, want, w.spec().ExtendedResources["nvidia.com/gpu"])
		})
	}
}
