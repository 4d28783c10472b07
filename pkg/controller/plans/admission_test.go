package plans

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// failing lists nothing.
type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no answer")
}

// staleProfiles has other rules of profiles, which are older.
type staleProfiles struct {
	client.Client
	rules []v1beta1.Rule
}

func (s staleProfiles) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := s.Client.Get(ctx, key, o, opts...)
	if p, ok := o.(*v1beta1.PartitionProfile); ok {
		p.ResourceVersion, p.Spec.Rules = "0", s.rules
	}
	return err
}

// late has the GPUNodes and plans of a moment ago.
type late struct {
	client.Client
	nodes v1beta1.GPUNodeList
	plans v1beta1.PartitionPlanList
}

func (l *late) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch out := list.(type) {
	case *v1beta1.GPUNodeList:
		l.nodes.DeepCopyInto(out)
		return nil
	case *v1beta1.PartitionPlanList:
		l.plans.DeepCopyInto(out)
		return nil
	}
	return l.Client.List(ctx, list, opts...)
}

// freezeCaches makes the caches keep what the API server has now.
func (w *world) freezeCaches() {
	w.t.Helper()
	l := &late{Client: w.d.Client}
	require.NoError(w.t, errors.Join(w.api.List(w.t.Context(), &l.nodes), w.api.List(w.t.Context(), &l.plans)))
	w.d.Client = l
}

// Why a node does not have another profile yet.
func TestPending(t *testing.T) {
	node := func(change func(*v1beta1.GPUNodeStatus)) *v1beta1.GPUNode {
		g := gpunodes.WithProfile("node-0", "old").GPUNode
		change(&g.Status)
		return &g
	}
	none := func(*v1beta1.GPUNodeStatus) {}
	wanted := &v1beta1.ProfileSnapshot{ProfileName: "new", Hash: "hash-new", Source: v1beta1.FromSpec}
	ofPlan := &v1beta1.ProfileSnapshot{ProfileName: "new", Hash: "hash-new", Source: v1beta1.FromPlan, PlanName: "p"}
	stopped := map[string][]v1beta1.PlanNode{"hash-new": {{NodeName: "a", Reason: "HardwareFailed"}}}
	for name, test := range map[string]struct {
		node    *v1beta1.GPUNode
		wanted  *v1beta1.ProfileSnapshot
		stopped map[string][]v1beta1.PlanNode
		want    *state.Pending
	}{
		"never had one":   {node(func(s *v1beta1.GPUNodeStatus) { s.Desired = nil }), wanted, nil, nil},
		"has it":          {node(none), &v1beta1.ProfileSnapshot{Hash: "hash-old"}, nil, nil},
		"is admitted":     {node(func(s *v1beta1.GPUNodeStatus) { s.AdmittedHash = "hash-new" }), wanted, nil, nil},
		"to another one":  {node(func(s *v1beta1.GPUNodeStatus) { s.AdmittedHash = "hash-other" }), wanted, nil, &state.Pending{Reason: names.ReasonWaitsForNodes, Message: "the switch to profile new waits for other nodes: 25% may be switched at once (the chart's controller.maxUnavailable)"}},
		"joins":           {node(func(s *v1beta1.GPUNodeStatus) { s.Applied = nil }), wanted, nil, nil},
		"waits for nodes": {node(none), wanted, nil, &state.Pending{Reason: names.ReasonWaitsForNodes, Message: "the switch to profile new waits for other nodes: 25% may be switched at once (the chart's controller.maxUnavailable)"}},
		"has a place": {node(func(s *v1beta1.GPUNodeStatus) {
			*s = gpunodes.WithProfile("a", "old").Switches(v1beta1.Draining, "x", "", "gpu-0").Status
		}), wanted, nil, nil},
		"of a plan":     {node(none), ofPlan, stopped, &state.Pending{Reason: names.ReasonWaitsForPlan, Message: "PartitionPlan p gives the node another version of profile new later"}},
		"others failed": {node(none), wanted, stopped, &state.Pending{Reason: names.ReasonTooManyFailures, Message: "more nodes failed with profile new than may (the chart's controller.maxFailures: 2): a: HardwareFailed"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Decider{MaxUnavailable: intstr.FromString("25%"), MaxFailures: intstr.FromInt32(2), result: rollout.Result{Stopped: test.stopped}}
			for range 2 {
				assert.Equal(t, test.want, d.Pending(test.node, test.wanted))
			}
		})
	}
}

// Whether a node may begin what it has planned.
func TestAdmitted(t *testing.T) {
	planning := func(source v1beta1.Source) *v1beta1.GPUNode {
		g := gpunodes.WithProfile("a", "old").Switches(v1beta1.Waiting, "new", "").GPUNode
		g.Status.Switch.To.Source, g.Status.Switch.To.PlanName = source, "p"
		return &g
	}
	admitted := planning(v1beta1.FromSpec)
	admitted.Status.AdmittedHash = "hash-new"
	for name, test := range map[string]struct {
		node   *v1beta1.GPUNode
		ok     bool
		others string
	}{
		"no switch": {&gpunodes.WithProfile("a", "old").GPUNode, false, ""},
		"admitted":  {admitted, true, ""},
		"begun":     {&gpunodes.WithProfile("a", "old").Switches(v1beta1.Draining, "new", "", "gpu-0").GPUNode, true, ""},
		"of a plan": {planning(v1beta1.FromPlan), false, ": kubectl tranche rollout status p says why"},
		"others":    {planning(v1beta1.FromSpec), false, ": 3 are being switched, and 1 may be at once (the chart's controller.maxUnavailable)"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Decider{MaxUnavailable: intstr.FromInt32(1), result: rollout.Result{Moving: 3}}
			ok, others := d.Admitted(test.node)
			assert.Equal(t, test.ok, ok)
			assert.Equal(t, test.others, others)
		})
	}
}

func TestRefused(t *testing.T) {
	r := v1beta1.Resource("gpunodes")
	for err, want := range map[error]bool{
		apierrors.NewForbidden(r, "a", nil):                                                  true,
		apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("GPUNode").GroupKind(), "a", nil): true,
		apierrors.NewBadRequest("a"):                                                         true,
		apierrors.NewRequestEntityTooLargeError("a"):                                         true,
		apierrors.NewConflict(r, "a", errors.New("b")):                                       false,
		apierrors.NewTooManyRequests("a", 1):                                                 false,
		errors.New("lost"):                                                                   false,
	} {
		assert.Equal(t, want, Refused(err), "%v", err)
	}
}

// What was written or read counts until the cache has it.
func TestNewest(t *testing.T) {
	node := func(name, uid, version string, created int64) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version, CreationTimestamp: metav1.Unix(created, 0)}}
	}
	known := func() assumed[*corev1.Node] {
		return assume([]*corev1.Node{node("older", "1", "9", 1), node("newer", "1", "11", 1), node("again", "2", "5", 7), node("before", "0", "99", 1), node("missing", "1", "3", 1)})
	}
	cached := func() []*corev1.Node {
		return []*corev1.Node{node("older", "1", "10", 1), node("newer", "1", "10", 1), node("again", "1", "6", 3), node("before", "1", "2", 3), node("unknown", "1", "1", 1)}
	}
	for late, want := range map[bool]map[string]string{
		false: {"older": "10", "newer": "11", "again": "5", "before": "2", "unknown": "1"},
		true:  {"older": "10", "newer": "11", "again": "5", "before": "2", "unknown": "1", "missing": "3"},
	} {
		a, got := known(), map[string]string{}
		for _, n := range a.newest(cached(), late) {
			got[n.Name] = n.ResourceVersion
		}
		assert.Equal(t, want, got)
		kept := []string{}
		for _, name := range []string{"older", "newer", "again", "before", "missing"} {
			if a[name] != nil {
				kept = append(kept, name)
			}
		}
		wantKept := []string{"newer", "again"}
		if late {
			wantKept = append(wantKept, "missing")
		}
		assert.Equal(t, wantKept, kept)
	}
}

func TestReread(t *testing.T) {
	w := newWorld(t, 1)
	gone := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	a := assume([]*v1beta1.GPUNode{gone, {ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}})
	assert.True(t, a.reread(t.Context(), w.api, gone))
	assert.NotContains(t, a, "gone")
	assert.True(t, a.reread(t.Context(), w.api, a["node-0"]))
	assert.Equal(t, w.gpuNode("node-0"), a["node-0"])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, a.reread(ctx, unreadable{w.api, "*v1beta1.GPUNode"}, a["node-0"]))
	assert.Empty(t, a)
}

// unreadable gets no objects of a kind.
type unreadable struct {
	client.Reader
	kind string
}

func (u unreadable) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if fmt.Sprintf("%T", o) == u.kind {
		return errors.New("no answer")
	}
	return u.Reader.Get(ctx, key, o, opts...)
}
