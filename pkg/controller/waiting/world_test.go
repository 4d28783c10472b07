package waiting

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/calls"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	small    = "gpu-mig-1g-10gb.tranche.dev"
	wholeGPU = "gpu.tranche.dev"
)

// world is an API server, an Explainer on a clock that stands still, and the scheduler's allocator.
type world struct {
	t         testing.TB
	api       client.WithWatch
	e         *Explainer
	clock     *clocktesting.FakePassiveClock
	scheduler *allocator.Scheduler
	published []*resourceapi.ResourceSlice
	// failing are the reads of the Explainer. calls counts its calls to the API server.
	failing calls.Calls
	calls   int
	// fail makes writes of events fail.
	fail error
}

func newWorld(t testing.TB, nodes int) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, resourceapi.AddToScheme, v1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	byNode := func(o client.Object) []string {
		return []string{ptr.Deref(o.(*resourceapi.ResourceSlice).Spec.NodeName, "")}
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&resourceapi.ResourceClaim{}).
		WithIndex(&resourceapi.ResourceClaim{}, drain.NodeIndex, drain.NodesOf).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorNodeName, byNode).Build()
	classes, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	for _, c := range classes {
		w.create(c.DeepCopy())
	}
	w.scheduler = allocator.New(classes, nil)
	for i := range nodes {
		w.node(fmt.Sprintf("node-%d", i), 1)
	}
	w.start()
	return w
}

// start starts an Explainer that knows nothing.
func (w *world) start() {
	counted := interceptor.NewClient(w.failing.Client(w.api), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			w.calls++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			w.calls++
			return c.List(ctx, l, opts...)
		},
	})
	writes := interceptor.NewClient(w.failing.Client(w.api), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.calls++
			if w.fail != nil {
				return w.fail
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			w.calls++
			if w.fail != nil {
				return w.fail
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	w.e = New(writes, counted, w.failing.Client(w.api), Options{After: time.Minute, PerSecond: 1e6, Clock: w.clock, Registry: prometheus.NewRegistry()})
	w.e.budget = budget{node: time.Minute, first: time.Minute, average: time.Second} // for slow machines
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	o.SetResourceVersion("")
	require.NoError(w.t, w.api.Create(w.t.Context(), o))
}

// node adds a node with some H100, of which some are withheld.
func (w *world) node(name string, gpus int, withheld ...int) {
	w.t.Helper()
	published, err := nodes.OfModel(name, "H100-80GB", gpus, func(i int, g *publish.GPU) { g.Withheld = slices.Contains(withheld, i) })
	require.NoError(w.t, err)
	for i, s := range published {
		w.published = append(w.published, s)
		s = s.DeepCopy()
		s.Name = fmt.Sprintf("%s-%d", name, i)
		w.create(s)
	}
	w.scheduler.Publish(w.published)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	w.create(w.gpuNode(name))
}

// claim creates a claim, which the allocator gives devices of a node, unless that is empty.
func (w *world) claim(namespace, name, class, node string) *resourceapi.ResourceClaim {
	w.t.Helper()
	c := allocator.Claim(name, allocator.Request("gpu", class, 1))
	c.Namespace, c.UID = namespace, types.UID("uid-"+name)
	if node != "" {
		grant, err := w.scheduler.Allocate(w.t.Context(), node, c)
		require.NoError(w.t, err)
		require.NotNil(w.t, grant)
		c.Status.Allocation = &grant.Result
	}
	status := c.Status
	w.create(c)
	c.Status = status
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), c))
	return c
}

// pod creates a pod that waits with a claim.
func (w *world) pod(name, claim string, change ...func(*corev1.Pod)) types.NamespacedName {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	if claim != "" {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	}
	for _, f := range change {
		f(p)
	}
	w.create(p)
	return client.ObjectKeyFromObject(p)
}

// waiting creates a pod and its claim for one device of a class.
func (w *world) waiting(name, class string) types.NamespacedName {
	w.t.Helper()
	w.claim("team-a", name+"-gpu", class, "")
	return w.pod(name, name+"-gpu")
}

// round runs a round after nodes have changed.
func (w *world) round(changed ...string) {
	w.t.Helper()
	for _, name := range changed {
		w.e.changes.add(w.gpuNode(name))
	}
	w.e.round(w.t.Context())
}

// byReason are the pods by the reasons of their events.
func (w *world) byReason() map[string]int {
	all, _ := w.e.numbers()
	return all
}

// unexplained are the pods that get no event, by the reason.
func (w *world) unexplained() map[string]int {
	_, all := w.e.numbers()
	return all
}

// explained runs rounds until pods have waited for long enough.
func (w *world) explained() {
	w.t.Helper()
	w.round()
	w.pass(time.Minute)
	w.round()
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// events are those of all pods, as REASON POD: NOTE.
func (w *world) events() (all []string) {
	w.t.Helper()
	var list eventsv1.EventList
	require.NoError(w.t, w.api.List(w.t.Context(), &list))
	for i := range list.Items {
		e := &list.Items[i]
		text := fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Namespace, e.Regarding.Name, e.Note)
		if e.Type == corev1.EventTypeNormal {
			text = "Normal " + text
		}
		if e.Series != nil {
			text = fmt.Sprintf("%d times %s", e.Series.Count, text)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func (w *world) delete(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreNotFound(w.api.Delete(w.t.Context(), o)))
}

var errAway = apierrors.NewServiceUnavailable("away")

func (w *world) gpuNode(name string) *v1beta1.GPUNode {
	return &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
