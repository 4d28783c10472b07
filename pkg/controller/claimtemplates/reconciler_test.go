package claimtemplates

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/calls"
)

const half = "tranche-fraction-500"

type world struct {
	t      *testing.T
	r      *Reconciler
	clock  *clocktesting.FakePassiveClock
	events chan string
}

// newWorld has the namespace team with the given label.
func newWorld(t *testing.T, label string) *world {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, resourceapi.AddToScheme(scheme))
	recorder := events.NewFakeRecorder(10000)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	w := &world{t: t, clock: clock, events: recorder.Events, r: &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Events: recorder, Clock: clock, Projects: Projects,
	}}
	w.r.Reader = w.r.Client
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if label != "" {
		namespace.Labels = map[string]string{names.LabelTranslate: label}
	}
	w.create(namespace)
	return w
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.r.Client.Create(w.t.Context(), o))
}

// pod makes a pod as the cache has it.
func (w *world) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	for _, c := range change {
		c(p)
	}
	w.create(p)
	return p
}

func naming(template string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "tranche", ResourceClaimTemplateName: ptr.To(template)})
	}
}

func annotated(p *corev1.Pod) { p.Annotations = map[string]string{"gpu-fraction": ""} }

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "team"}})
	require.NoError(w.t, err)
	return result
}

func (w *world) templates() (names []string) {
	w.t.Helper()
	var list resourceapi.ResourceClaimTemplateList
	require.NoError(w.t, w.r.Client.List(w.t.Context(), &list))
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	return names
}

// told are the events since the last call.
func (w *world) told() (all []string) {
	for {
		select {
		case e := <-w.events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestATemplateLivesAsLongAsItIsNamed(t *testing.T) {
	w := newWorld(t, "kai")
	pod := w.pod("trainer", naming(half))
	w.reconcile()
	require.Equal(t, []string{half}, w.templates())

	// Somebody deletes it.
	require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &resourceapi.ResourceClaimTemplate{}, client.InNamespace("team")))
	w.reconcile()
	require.Equal(t, []string{half}, w.templates())

	require.NoError(t, w.r.Client.Delete(t.Context(), pod))
	require.Equal(t, keepUnused, w.reconcile().RequeueAfter)
	w.clock.SetTime(w.clock.Now().Add(keepUnused / 2))
	w.pod("again", naming(half))
	require.Zero(t, w.reconcile().RequeueAfter)
	require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("team")))
	require.Equal(t, keepUnused, w.reconcile().RequeueAfter)
	w.clock.SetTime(w.clock.Now().Add(keepUnused))
	require.Zero(t, w.reconcile().RequeueAfter)
	require.Empty(t, w.templates())
	require.Empty(t, w.told())
}

func TestNobodyElsesTemplates(t *testing.T) {
	for name, test := range map[string]struct {
		label string
		made  func(*resourceapi.ResourceClaimTemplate)
	}{
		"of the same name": {"kai", func(*resourceapi.ResourceClaimTemplate) {}},
		"with the label": {"kai", func(o *resourceapi.ResourceClaimTemplate) {
			o.Name, o.Labels = "mine", map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}
		}},
		"with label and prefix": {"kai", func(o *resourceapi.ResourceClaimTemplate) {
			o.Name, o.Labels = "tranche-mine", map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}
		}},
		"in another's namespace": {"", func(*resourceapi.ResourceClaimTemplate) {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.label)
			theirs := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: half}}
			test.made(theirs)
			w.create(theirs)
			w.pod("trainer", naming(theirs.Name))
			w.reconcile()
			require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("team")))
			for range 2 {
				w.reconcile()
				w.clock.SetTime(w.clock.Now().Add(2 * keepUnused))
			}
			var after resourceapi.ResourceClaimTemplate
			require.NoError(t, w.r.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), &after))
			assert.Equal(t, theirs.ResourceVersion, after.ResourceVersion)
		})
	}
}

func TestNoTemplate(t *testing.T) {
	for name, test := range map[string]struct {
		label string
		pod   []func(*corev1.Pod)
	}{
		"no label":           {"", []func(*corev1.Pod){naming(half)}},
		"another project":    {"volcano", []func(*corev1.Pod){naming(half)}},
		"no amount":          {"kai", []func(*corev1.Pod){naming("tranche-half")}},
		"an amount too many": {"kai", []func(*corev1.Pod){naming("tranche-fraction-1001")}},
		"no template": {"kai", []func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To(half)}}
		}}},
		"a pod that ended": {"kai", []func(*corev1.Pod){naming(half), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.label)
			w.pod("trainer", test.pod...)
			w.reconcile()
			assert.Empty(t, w.templates())
		})
	}
}

// Thousands of amounts make a limited number of templates. Those that are needed come before
// those that are not.
func TestThousandsOfAmounts(t *testing.T) {
	w := newWorld(t, "kai")
	w.pod("first", naming("tranche-memory-1mi"))
	w.reconcile()
	require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("team")))
	for i := range 2000 {
		w.pod(fmt.Sprint("pod-", i), naming(fmt.Sprintf("tranche-memory-%dmi", 1000+i)))
	}
	w.reconcile()
	require.Len(t, w.templates(), mostTemplates)
	require.NotContains(t, w.templates(), "tranche-memory-1mi", "no pod names it any more")
	require.Contains(t, w.templates(), "tranche-memory-1499mi")
	told := w.told()
	require.Len(t, told, 2000-mostTemplates)
	require.Equal(t, "Warning TooManyAmounts Pods of namespace team ask for more than 500 different amounts of GPUs; this pod waits until others end", told[0])
	w.reconcile()
	require.Empty(t, w.told(), "each pod is told once")

	// Other namespaces have a limit of their own.
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{names.LabelTranslate: "kai"}}})
	w.pod("elsewhere", naming("tranche-memory-77mi"), func(p *corev1.Pod) { p.Namespace = "other" })
	_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "other"}})
	require.NoError(t, err)
	require.Contains(t, w.templates(), "tranche-memory-77mi")
	require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &resourceapi.ResourceClaimTemplate{}, client.InNamespace("other")))

	for i := range 10 {
		require.NoError(t, w.r.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("pod-", i)}}))
	}
	w.reconcile()
	require.Len(t, w.templates(), mostTemplates)
	require.Contains(t, w.templates(), "tranche-memory-1509mi")
}

// Where others need room, the templates that were used last are kept.
func TestLongestUnusedFirst(t *testing.T) {
	w := newWorld(t, "kai")
	used := []string{"tranche-memory-3mi", "tranche-memory-4mi", "tranche-memory-2mi", "tranche-memory-1mi"}
	for _, name := range used {
		pod := w.pod("first", naming(name))
		w.reconcile()
		require.NoError(t, w.r.Client.Delete(t.Context(), pod))
		w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(keepUnused / 6))
	}
	for i := range mostTemplates - 2 {
		w.pod(fmt.Sprint("pod-", i), naming(fmt.Sprintf("tranche-memory-%dmi", 1000+i)))
	}
	w.reconcile()
	require.Len(t, w.templates(), mostTemplates)
	for i, name := range used {
		assert.Equal(t, i >= 2, slices.Contains(w.templates(), name), name)
	}
}

// A cache that lacks templates that were just created makes no room for more.
func TestLateCache(t *testing.T) {
	w := newWorld(t, "kai")
	for i := range mostTemplates {
		w.create(&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: fmt.Sprintf("tranche-memory-%dmi", 1000+i), Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}, Finalizers: []string{"example.com/never"},
		}})
	}
	w.pod("trainer", naming(half))
	w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*resourceapi.ResourceClaimTemplateList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	w.reconcile()
	assert.Len(t, w.told(), 1)
	require.Error(t, w.r.Reader.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: half}, &resourceapi.ResourceClaimTemplate{}))
}

// Templates that a tenant's finalizer keeps leave no room for others, however often pods change
// what they ask for.
func TestTemplatesThatAreKeptCount(t *testing.T) {
	w := newWorld(t, "kai")
	for round := range 4 {
		for i := range 400 {
			w.pod(fmt.Sprint("pod-", i), naming(fmt.Sprintf("tranche-memory-%dmi", 1000*(round+1)+i)))
		}
		w.reconcile()
		var list resourceapi.ResourceClaimTemplateList
		require.NoError(t, w.r.Client.List(t.Context(), &list))
		require.LessOrEqual(t, len(list.Items), mostTemplates)
		for i := range list.Items {
			list.Items[i].Finalizers = []string{"example.com/never"}
			require.NoError(t, w.r.Client.Update(t.Context(), &list.Items[i]))
		}
		require.NoError(t, w.r.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("team")))
	}
	require.Len(t, w.templates(), mostTemplates)
	require.NotEmpty(t, w.told())
	w.clock.SetTime(w.clock.Now().Add(2 * keepUnused))
	w.reconcile()
	require.Zero(t, w.reconcile().RequeueAfter, "nothing is left to delete")
	require.Empty(t, w.r.unused)
}

func TestAnnotationsThatNobodyReads(t *testing.T) {
	const note = "Warning AnnotationIgnored Annotation gpu-fraction gives this pod no GPU, because "
	for name, test := range map[string]struct {
		label string
		pod   []func(*corev1.Pod)
		want  string
	}{
		"no label": {"", []func(*corev1.Pod){annotated},
			note + "namespace team does not have the label tranche.dev/translate=kai: ask an administrator for the label and create the pod again, or use a claim"},
		"another label": {"hami", []func(*corev1.Pod){annotated},
			note + "namespace team does not have the label tranche.dev/translate=kai: ask an administrator for the label and create the pod again, or use a claim"},
		"older than the label": {"kai", []func(*corev1.Pod){annotated},
			note + "it was created before pods of namespace team were translated (label tranche.dev/translate=kai, and translate.kai.enabled of the chart): create the pod again"},
		"no annotation":    {"", nil, ""},
		"KAI schedules it": {"", []func(*corev1.Pod){annotated, func(p *corev1.Pod) { p.Spec.SchedulerName = "kai-scheduler" }}, ""},
		"Run:ai does":      {"", []func(*corev1.Pod){annotated, func(p *corev1.Pod) { p.Spec.SchedulerName = "runai-scheduler" }}, ""},
		"of KAI 0.18": {"kai", []func(*corev1.Pod){func(p *corev1.Pod) {
			p.Annotations = map[string]string{"nvidia.com/container.main.gpu-memory.request": "8Gi"}
		}}, "Warning AnnotationIgnored Annotation nvidia.com/container.main.gpu-memory.request gives this pod no GPU, because it was created before pods of namespace team were translated (label tranche.dev/translate=kai, and translate.kai.enabled of the chart): create the pod again"},
		"it has a claim": {"", []func(*corev1.Pod){annotated, naming("mine")}, ""},
		"it has ended":   {"", []func(*corev1.Pod){annotated, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.label)
			w.pod("trainer", test.pod...)
			w.reconcile()
			w.reconcile()
			if test.want == "" {
				assert.Empty(t, w.told())
				return
			}
			assert.Equal(t, []string{test.want}, w.told())
		})
	}
	w := newWorld(t, "")
	w.r.Projects = []string{"hami"}
	w.pod("trainer", annotated)
	w.reconcile()
	assert.Empty(t, w.told(), "the chart does not translate KAI's annotations")
}

func TestLabelThatTranslatesNothing(t *testing.T) {
	w := newWorld(t, "KAI")
	w.reconcile()
	w.reconcile()
	assert.Equal(t, []string{"Warning LabelIgnored The label tranche.dev/translate=KAI of this namespace has no effect: by the chart's values below translate, the value can be kai, hami, nos"}, w.told())
	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{names.LabelTranslate: "KAI"}}}
	require.NoError(t, w.r.Client.Delete(t.Context(), again))
	w.reconcile()
	w.create(again)
	w.reconcile()
	assert.Len(t, w.told(), 1, "it is another namespace")
	for _, label := range []string{"", "kai"} {
		w := newWorld(t, label)
		w.reconcile()
		assert.Empty(t, w.told())
	}
}

func TestNothingIsRememberedOfNamespacesThatAreGone(t *testing.T) {
	w := newWorld(t, "")
	pod := w.pod("trainer", annotated)
	w.reconcile()
	require.Len(t, w.r.told["team"], 1)
	require.NoError(t, w.r.Client.Delete(t.Context(), pod))
	w.reconcile()
	require.Empty(t, w.r.told["team"])
	of := func(namespace string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: "a"}
	}
	w.r.unused = map[types.NamespacedName]time.Time{of("team"): {}, of("other"): {}}
	require.NoError(t, w.r.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}))
	w.reconcile()
	w.reconcile()
	require.NotContains(t, w.r.told, "team")
	assert.Equal(t, map[types.NamespacedName]time.Time{of("other"): {}}, w.r.unused)
}

// What cannot be read or written is tried again.
func TestEachCallThatFails(t *testing.T) {
	var c calls.Calls
	w := newWorld(t, names.TranslateKAI)
	w.pod("a", naming(half))
	reader := w.r.Client
	w.r.Client = c.Client(reader.(client.WithWatch))
	w.r.Reader = w.r.Client
	each := func() {
		c.Each(t, func() error {
			_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "team"}})
			return err
		})
	}
	each()
	w.r.Client = reader
	require.Len(t, w.templates(), 1)
	w.r.Client = c.Client(reader.(client.WithWatch))
	require.NoError(t, reader.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}))
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(keepUnused))
	each()
	w.r.Client = reader
	assert.Empty(t, w.templates())
}
