package live

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/page/invent"
	"github.com/tranche-dev/tranche/test/scenes"
)

var now = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

func loaded(t testing.TB, o invent.Objects) *Store {
	s := New(clock)
	require.NoError(t, s.Load(o.Objects, o.Plans...))
	require.True(t, s.Step(context.Background()))
	return s
}

// The nodes are those of a summary of all objects at once.
func TestSnapshotEqualsSummary(t *testing.T) {
	o := invent.Cluster(14, now)
	s := loaded(t, o).Snapshot()
	want := cluster.New(o.Objects).Summary(t.Context(), cluster.View{})
	require.Len(t, s.Nodes, len(want.Nodes))
	for i, n := range s.Nodes {
		assert.Equal(t, want.Nodes[i], n.Node, n.Name)
	}
	assert.Equal(t, want.Waiting, s.Waiting)
	require.Len(t, s.Rollouts, 2)
	assert.Equal(t, "inference-fleet", s.Rollouts[0].Plan, "what is under way comes first")
	assert.True(t, s.Complete)
}

// A change computes the nodes that it concerns again; the others stay the same objects.
func TestOnlyWhatChangesIsComputed(t *testing.T) {
	o := invent.Cluster(6, now)
	s := loaded(t, o)
	before := s.Snapshot()
	claim := o.Claims[0].DeepCopy()
	claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
	require.NoError(t, s.Put(claim))
	require.True(t, s.Step(t.Context()))
	after := s.Snapshot()
	assert.Equal(t, before.Version+1, after.Version)
	assert.Equal(t, before.Shape, after.Shape)
	changed := 0
	for i := range after.Nodes {
		if after.Nodes[i] != before.Nodes[i] {
			changed++
			assert.Equal(t, after.Version, after.Nodes[i].Version)
		}
	}
	assert.Equal(t, 1, changed)

	again := o.Nodes[0].DeepCopy()
	again.Labels = map[string]string{"some": "label"}
	require.NoError(t, s.Put(again))
	assert.False(t, s.Step(t.Context()), "the page does not show labels")
}

func TestNodesComeAndGo(t *testing.T) {
	o := invent.Cluster(2, now)
	s := loaded(t, o)
	for i := range o.Slices {
		if *o.Slices[i].Spec.NodeName == "node-0002" {
			require.NoError(t, s.slices.Delete(&o.Slices[i]))
		}
	}
	for i := range o.GPUNodes {
		if o.GPUNodes[i].Name == "node-0002" {
			require.NoError(t, s.gpuNodes.Delete(&o.GPUNodes[i]))
		}
	}
	for i := range o.Claims {
		require.NoError(t, s.claims.Delete(&o.Claims[i]))
	}
	shape := s.Snapshot().Shape
	require.True(t, s.Step(t.Context()))
	assert.Len(t, s.Snapshot().Nodes, 1)
	assert.Greater(t, s.Snapshot().Shape, shape)
	require.NoError(t, s.Load(o.Objects))
	require.True(t, s.Step(t.Context()))
	assert.Len(t, s.Snapshot().Nodes, 2)
}

// Devices of a node that publishes nothing any more are shown as lost.
func TestLostDevices(t *testing.T) {
	o := invent.Cluster(1, now)
	o.Slices, o.GPUNodes = nil, nil
	s := loaded(t, o).Snapshot()
	require.Len(t, s.Nodes, 1)
	assert.NotEmpty(t, s.Nodes[0].Lost)
}

func TestKindsHaveClasses(t *testing.T) {
	kinds := map[string]string{}
	for _, k := range loaded(t, invent.Cluster(4, now)).Snapshot().Kinds {
		kinds[k.Label] = k.Class
	}
	assert.Equal(t, "gpu-mig-1g-10gb.tranche.dev", kinds["1g.10gb"])
	assert.Equal(t, "gpu.tranche.dev", kinds[cluster.WholeGPU])
	assert.Equal(t, "gpu-xcp-cpx.tranche.dev", kinds["cpx"])
	assert.Empty(t, kinds["1g.10gb+me"], "the class of 1g.10gb does not select it")
}

// follow starts a store that reads from clients.
func follow(t *testing.T, kube *fake.Clientset) *Store {
	s := New(clock)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Follow(ctx, read.Clients{Kubernetes: kube, Ours: clientfake.New()}, "team-a")
	}()
	t.Cleanup(func() { stop(); <-ended })
	return s
}

func await(t *testing.T, s *Store, what string, is func(*overview.Snapshot) bool) *overview.Snapshot {
	t.Helper()
	changes, end := s.Subscribe()
	defer end()
	for {
		if now := s.Snapshot(); now.Complete && is(now) {
			return now
		}
		select {
		case <-changes:
		case <-t.Context().Done():
			require.Fail(t, "it did not happen", what)
		case <-time.After(30 * time.Second):
			require.Fail(t, "it did not happen", what)
		}
	}
}

func asObjects[T any, P interface {
	*T
	runtime.Object
}](all []T) (out []runtime.Object) {
	for i := range all {
		out = append(out, P(&all[i]))
	}
	return out
}

func TestFollow(t *testing.T) {
	o := invent.Cluster(2, now)
	kube := kubefake.New(append(append(asObjects(o.Slices), asObjects(o.Claims)...), asObjects(o.Classes)...)...)
	s := follow(t, kube)
	first := await(t, s, "two nodes", func(s *overview.Snapshot) bool { return len(s.Nodes) == 2 })
	assert.Empty(t, first.Unread)
	held := first.Nodes[0].Memory.HeldBytes
	claim := scenes.Claim("team-a", "new", "node-0001", 0, scenes.GPUOf(0))
	for i := range o.Claims {
		if err := kube.ResourceV1().ResourceClaims(o.Claims[i].Namespace).Delete(t.Context(), o.Claims[i].Name, metav1.DeleteOptions{}); err != nil {
			require.NoError(t, err)
		}
	}
	await(t, s, "nothing is held", func(s *overview.Snapshot) bool {
		return s.Nodes[0].Memory.HeldBytes == 0 && s.Nodes[1].Memory.HeldBytes == 0
	})
	_, err := kube.ResourceV1().ResourceClaims("team-a").Create(t.Context(), &claim, metav1.CreateOptions{})
	require.NoError(t, err)
	await(t, s, "a GPU is held", func(s *overview.Snapshot) bool { return s.Nodes[0].Memory.HeldBytes > 0 })
	assert.Positive(t, held)
}

// refuse forbids to list and watch a resource in a namespace; empty: in all together.
func refuse(kube *fake.Clientset, resource string, namespaces ...string) {
	react := func(a clienttesting.Action) (bool, runtime.Object, error) {
		for _, ns := range namespaces {
			if a.GetNamespace() == ns {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
			}
		}
		return false, nil, nil
	}
	clientfake.React(&kube.Fake, "list", resource, react)
	kube.PrependWatchReactor(resource, func(a clienttesting.Action) (bool, watch.Interface, error) {
		done, _, err := react(a)
		return done, nil, err
	})
}

func TestWhatMayNotBeRead(t *testing.T) {
	o := invent.Cluster(1, now)
	for name, tt := range map[string]struct {
		refuse  func(*fake.Clientset)
		unread  []string
		partial bool
	}{
		"claims of other namespaces": {func(k *fake.Clientset) { refuse(k, "resourceclaims", "") }, []string{"you are allowed to list resourceclaims.resource.k8s.io in the namespace team-a only"}, true},
		"no claims":                  {func(k *fake.Clientset) { refuse(k, "resourceclaims", "", "team-a") }, []string{"you are not allowed to list resourceclaims.resource.k8s.io"}, true},
		"classes and nodes": {func(k *fake.Clientset) { refuse(k, "deviceclasses", ""); refuse(k, "nodes", "") },
			[]string{"you are not allowed to list deviceclasses.resource.k8s.io", "you are not allowed to list nodes"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.New(asObjects(o.Slices)...)
			tt.refuse(kube)
			s := await(t, follow(t, kube), "the node", func(s *overview.Snapshot) bool { return len(s.Nodes) == 1 && len(s.Unread) == len(tt.unread) })
			var reasons []string
			for _, u := range s.Unread {
				reasons = append(reasons, u.Message)
				assert.NotEmpty(t, u.Consequence)
			}
			assert.Equal(t, tt.unread, reasons)
			assert.Equal(t, tt.partial, s.Partial)
			if tt.partial {
				assert.Contains(t, s.Nodes[0].States(), "unknown")
			}
		})
	}
}

// What waits is computed again when pods or claims can no longer be read, and nothing for other kinds.
func TestWhatMayNoLongerBeRead(t *testing.T) {
	for resource, waiting := range map[string]bool{read.Pods.Resource: true, read.Claims.Resource: true, read.Nodes.Resource: false} {
		s := loaded(t, invent.Cluster(1, now))
		s.note(text.Unread{Resource: resource, Message: "you may not"})
		w, ok := s.take()
		require.True(t, ok)
		assert.Equal(t, waiting, w.waiting != nil, resource)
		assert.Len(t, w.unread, 1)
	}
}

// Of several classes the one without an extended resource and with the shortest name stands for a kind.
func TestBetterClasses(t *testing.T) {
	var classes []*resourceapi.DeviceClass
	for _, name := range []string{"gpu-b", "gpu-c", "gpu-aa", "gpu"} {
		classes = append(classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	classes[3].Spec.ExtendedResourceName = new("nvidia.com/gpu")
	for i, a := range classes {
		for j, b := range classes {
			assert.Equal(t, i < j, better(a, b), "%s, %s", a.Name, b.Name)
		}
	}
}

func TestPutRefusesOthers(t *testing.T) {
	assert.Error(t, New(clock).Put(&corev1.Secret{}))
	assert.NoError(t, New(clock).Put(&v1beta1.PartitionPlan{}))
	assert.NoError(t, New(clock).Put(&resourceapi.DeviceTaintRule{}))
}

// A viewer is told why a pod waits, without the names of others.
func TestExplain(t *testing.T) {
	s := loaded(t, invent.Cluster(4, now))
	all, err := s.Explain(t.Context(), overview.Viewer{}, "vision", "train-9000")
	require.NoError(t, err)
	require.NotNil(t, all)
	assert.NotEmpty(t, all.Nodes)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"namespace":"nlp"`)
	assert.Contains(t, string(text), "7g.80gb")

	only := func(namespace string) bool { return namespace == "vision" }
	e, err := s.Explain(t.Context(), overview.Viewer{Claims: only, Pods: only, NoNodes: true, NoProfiles: true}, "vision", "train-9000")
	require.NoError(t, err)
	text, err = json.Marshal(e)
	require.NoError(t, err)
	for _, name := range []string{"nlp", "research", "search", "serve-llama", "notebook", "embed"} {
		assert.NotContains(t, string(text), name)
	}
	assert.Contains(t, string(text), "another namespace")
	assert.Equal(t, why.Unknown, e.State, "nodes and their switches are not known")

	none, err := s.Explain(t.Context(), overview.Viewer{}, "vision", "nobody")
	assert.NoError(t, err)
	assert.Nil(t, none)
}

// Of a large cluster a part is considered, of each model.
func TestCandidates(t *testing.T) {
	store := loaded(t, invent.Cluster(100, now))
	s := store.Snapshot()
	chosen, left := candidates(s)
	assert.LessOrEqual(t, len(chosen), maxExplained)
	assert.Equal(t, 100, len(chosen)+left)
	e, err := store.Explain(t.Context(), overview.Viewer{}, "vision", "train-9000")
	require.NoError(t, err)
	assert.Len(t, e.Nodes, len(chosen))
	assert.Equal(t, fmt.Sprintf("this page considers the %d nodes with the most free memory only, and not %d others", len(chosen), left), e.Unread[len(e.Unread)-1].Consequence)
	least := map[string]cluster.Bytes{}
	free := func(n *overview.Node) cluster.Bytes { return n.Memory.TotalBytes - n.Memory.HeldBytes }
	for _, name := range chosen {
		n := s.Find(name)
		least[n.Model] = min(free(n), cmp.Or(least[n.Model], free(n)))
	}
	assert.Len(t, least, 2)
	for _, n := range s.Nodes {
		if !slices.Contains(chosen, n.Name) {
			assert.LessOrEqual(t, free(n), least[n.Model], n.Name)
		}
	}
}
