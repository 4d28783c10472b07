package plans

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is an API server, and a Decider on a clock that stands still until it is told.
type world struct {
	t      *testing.T
	api    client.WithWatch
	clock  *clocktesting.FakeClock
	d      *Decider
	woken  []string
	again  int
	events []string
	// refuse makes calls fail, by verb.
	refuse func(verb string, o runtime.Object) error
	// lost is what the Decider hears of a write that worked.
	lost func(o runtime.Object) error
}

// notes are the events.
type notes struct {
	recorder.EventRecorder
	w *world
}

func (n notes) Eventf(o, _ runtime.Object, kind, reason, _, note string, args ...any) {
	n.w.events = append(n.w.events, fmt.Sprintf("%s %s %s: %s", o.(client.Object).GetName(), kind, reason, fmt.Sprintf(note, args...)))
}

// newWorld has the profile cpx, and nodes that have the default.
func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), v1beta1.AddToScheme(scheme)))
	w := &world{t: t, clock: clocktesting.NewFakeClock(noon)}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta1.GPUNode{}, &v1beta1.PartitionPlan{}).Build()
	check := func(verb string, o runtime.Object) error {
		if w.refuse == nil {
			return nil
		}
		return w.refuse(verb, o)
	}
	c := interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(check("get", o), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(check("list", l), c.List(ctx, l, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := check("write", o); err != nil {
				return err
			}
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if w.lost != nil {
				err = errors.Join(err, w.lost(o))
			}
			return err
		},
	})
	w.d = &Decider{
		Client: c, Reader: w.api, Clock: w.clock, Events: notes{w: w}, MaxUnavailable: intstr.FromInt32(1), MaxFailures: intstr.FromInt32(0),
		Wake: func(node string) { w.woken = append(w.woken, node) }, Again: func() { w.again++ },
	}
	w.create(&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx"}, Spec: v1beta1.PartitionProfileSpec{Rules: cpx}})
	for i := range nodes {
		w.node(gpunodes.WithProfile(fmt.Sprintf("node-%d", i), ""), nil)
	}
	return w
}

var cpx = []v1beta1.Rule{{XCP: &v1beta1.XCP{ComputePartition: "CPX"}}}

func hashOfCPX() string { s := profile.Snapshot("cpx", cpx); return s.Hash }

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.api.Create(w.t.Context(), o))
}

func (w *world) node(g *gpunodes.Node, labels map[string]string) {
	w.t.Helper()
	g.GPUs(gpunodes.XCP("SPX", ""), "gpu-0").Status.Node.AppliedHash = g.Status.Applied.Hash
	status := g.Status
	w.create(&g.GPUNode)
	g.Status = status
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), &g.GPUNode))
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.Name, Labels: labels}})
}

func (w *world) gpuNode(name string) *v1beta1.GPUNode {
	w.t.Helper()
	var g v1beta1.GPUNode
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &g))
	return &g
}

// change changes the status of a GPUNode.
func (w *world) change(name string, change func(*v1beta1.GPUNodeStatus)) {
	w.t.Helper()
	g := w.gpuNode(name)
	change(&g.Status)
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), g))
}

// plan adds a plan for cpx.
func (w *world) plan(name string, change ...func(*v1beta1.PartitionPlan)) {
	w.t.Helper()
	p := &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.ProfileName, p.Spec.NodeSelector = "cpx", &v1beta1.NodeSelector{}
	for _, f := range change {
		f(p)
	}
	w.create(p)
}

// getsCPX has a node end its switch to cpx.
func (w *world) getsCPX(name, plan string) {
	w.t.Helper()
	s := profile.Snapshot("cpx", cpx)
	s.Source, s.PlanName = v1beta1.FromPlan, plan
	w.change(name, func(status *v1beta1.GPUNodeStatus) {
		status.Desired, status.Applied, status.RequestedHash = &s, s.DeepCopy(), ""
		status.Node.AppliedHash = s.Hash
	})
}

// decide returns what a decision wrote and said.
func (w *world) decide() (outcome string, err error) {
	w.t.Helper()
	w.woken, w.again, w.events = nil, 0, nil
	wake, err := w.d.Decide(w.t.Context())
	of := struct {
		Error         string                                 `json:"error,omitempty"`
		Wake          time.Duration                          `json:"wake,omitempty"`
		Admitted      map[string]string                      `json:"admitted,omitempty"`
		Plans         map[string]v1beta1.PartitionPlanStatus `json:"plans,omitempty"`
		Events, Woken []string                               `json:",omitempty"`
		Again         int                                    `json:"again,omitempty"`
	}{Admitted: map[string]string{}, Plans: map[string]v1beta1.PartitionPlanStatus{}, Events: w.events, Woken: w.woken, Again: w.again}
	if err != nil {
		of.Error = err.Error()
	}
	if !wake.IsZero() {
		of.Wake = wake.Sub(w.clock.Now())
	}
	slices.Sort(of.Woken)
	var nodes v1beta1.GPUNodeList
	require.NoError(w.t, w.api.List(w.t.Context(), &nodes))
	for _, g := range nodes.Items {
		if g.Status.AdmittedHash != "" {
			of.Admitted[g.Name] = g.Status.AdmittedHash
		}
	}
	var all v1beta1.PartitionPlanList
	require.NoError(w.t, w.api.List(w.t.Context(), &all))
	for _, p := range all.Items {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type != names.ConditionProgressing })
		of.Plans[p.Name] = p.Status
	}
	data, marshal := yaml.Marshal(of)
	require.NoError(w.t, marshal)
	return strings.ReplaceAll(string(data), hashOfCPX(), "HASH-OF-CPX"), err
}

// requireDecision compares a decision with a golden file.
func (w *world) requireDecision(name string) error {
	w.t.Helper()
	got, err := w.decide()
	golden.Equal(w.t, filepath.Join("testdata", name+".yaml"), got)
	return err
}
