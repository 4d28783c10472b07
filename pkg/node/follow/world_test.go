package follow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/nodetest/rig"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// world is a node whose Follower takes one step when the test says so. The test is the controller.
type world struct {
	*Follower
	t     *testing.T
	rig   *rig.Rig
	nodes *clientfake.Client
	// reports are those that the API server has accepted, refuse is its answer to the next ones.
	reports []v1beta1.NodeReport
	refuse  error
}

func newWorld(t *testing.T, model string) *world {
	t.Helper()
	r := rig.New(t, model)
	r.Publish()
	w := &world{t: t, rig: r, nodes: clientfake.New()}
	clientfake.React(&w.nodes.Fake, "patch", "gpunodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if w.refuse != nil {
			return true, nil, w.refuse
		}
		var body struct {
			Status struct{ Node v1beta1.NodeReport }
		}
		require.NoError(t, json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &body))
		w.reports = append(w.reports, body.Status.Node)
		return true, &v1beta1.GPUNode{}, nil
	})
	w.Follower = New(Config{
		Node: r.Node, Nodes: w.nodes.GPUNodes(), Machine: r.Machine, Version: "v1", RebootFile: t.TempDir() + "/reboot.json",
		Claims: r.Claims, GPUs: r.GPUs, Roster: r.Roster, Drivers: r.Drivers, Profile: r.Profile, Publisher: r.Publisher, Events: r.Events, Monitor: r, Sharing: r.Sharing,
		TaintSettle: time.Millisecond, TaintsPatience: time.Nanosecond,
	})
	return w
}

// see has the watch deliver a status of the GPUNode, and takes a step.
func (w *world) see(status v1beta1.GPUNodeStatus) {
	w.t.Helper()
	w.deliver(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "first"}, Status: status})
	w.step(w.rig.Context)
}

func (w *world) deliver(node *v1beta1.GPUNode) {
	w.t.Helper()
	require.NoError(w.t, w.informer.GetStore().Update(node))
}

// last is the last report.
func (w *world) last() v1beta1.NodeReport {
	w.t.Helper()
	require.NotEmpty(w.t, w.reports, "nothing is reported")
	return w.reports[len(w.reports)-1]
}

// answered is the answer to a switch in a state, with what the node reports besides.
func (w *world) answered(state v1beta1.State, sw *v1beta1.Switch) *v1beta1.Task {
	w.t.Helper()
	w.see(v1beta1.GPUNodeStatus{State: state, Switch: sw})
	task := w.last().Task
	require.NotNil(w.t, task, "no answer to %s", state)
	require.Equal(w.t, []any{sw.ID, state}, []any{task.SwitchID, task.State}, task.Message)
	return task
}

// snapshotOf is a profile of these rules.
func snapshotOf(t *testing.T, name, rules string) v1beta1.ProfileSnapshot {
	t.Helper()
	var parsed []v1beta1.Rule
	require.NoError(t, yaml.UnmarshalStrict([]byte(rules), &parsed))
	s := profile.Snapshot(name, parsed)
	s.Source, s.Hash = v1beta1.FromSpec, "hash of "+name
	return s
}

const (
	twoHalves = "[{mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]"
	wholeOnly = "[{mig: {mode: Disabled}}]"
	dynamic   = "[{mig: {mode: Dynamic}}]"
)

var none = v1beta1.ProfileSnapshot{Source: v1beta1.FromNone}

// small is a partition of the first GPU, whole is that GPU.
func small(t *testing.T, w *world) gpu.Placement { return placement(t, w, rig.GPU0+"-mig-1g-10gb-0") }

func placement(t *testing.T, w *world, name string) gpu.Placement {
	t.Helper()
	for _, g := range w.rig.Roster.All() {
		for _, p := range g.Placements {
			if p.Name() == name {
				return p
			}
		}
	}
	require.Fail(t, "no placement "+name)
	return gpu.Placement{}
}

// createFails has the driver create no partition.
var createFails = nvdriver.Faults{
	Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}},
	Calls:  []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}},
}
