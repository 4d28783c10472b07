package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	ours "github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// writes are those of a GPUNode.
type writes struct {
	sync.Mutex
	count int
}

// steered is a machine whose plugin follows a GPUNode. The test is the controller.
type steered struct {
	*machine
	nodes *clientfake.Client
	// written keeps reading the GPUNode and writing it together, and counts the writes.
	written *writes
	last    int
	// policy is that of the switches.
	policy v1beta1.SwitchPolicy
	// onReport sees each report before it is written; nil: nobody does.
	onReport func(*v1beta1.NodeReport)
}

func steer(m *machine) *steered {
	s := &steered{machine: m, nodes: clientfake.New(), written: &writes{}}
	clientfake.React(&s.nodes.Fake, "patch", "gpunodes", s.applyReport)
	// The chart lets the plugin list, watch, create and report.
	for _, verb := range []string{"get", "update", "delete"} {
		clientfake.React(&s.nodes.Fake, verb, "gpunodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), nodetest.NodeName, errors.New("no RBAC rule"))
		})
	}
	m.config.GPUNodes = s.nodes.GPUNodes()
	return s
}

// applyReport does what the API server does with the plugin's server-side apply.
func (s *steered) applyReport(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	if patch.GetPatchType() == types.MergePatchType {
		return false, nil, nil // the controller's
	}
	if patch.GetPatchType() != types.ApplyPatchType || patch.GetSubresource() != "status" {
		return true, nil, fmt.Errorf("unexpected patch %s of %q", patch.GetPatchType(), patch.GetSubresource())
	}
	var body struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil || len(body.Status) != 1 {
		return true, nil, fmt.Errorf("the plugin writes status.node only, this is %s", patch.GetPatch())
	}
	s.written.Lock()
	defer s.written.Unlock()
	node, err := s.get()
	if err != nil {
		return true, nil, err
	}
	node.Status.Node = &v1beta1.NodeReport{}
	if err := json.Unmarshal(body.Status["node"], node.Status.Node); err != nil {
		return true, nil, err
	}
	if s.onReport != nil {
		s.onReport(node.Status.Node)
	}
	return true, node, s.update(node)
}

// update writes the GPUNode. The caller holds the lock since it has read it.
func (s *steered) update(node *v1beta1.GPUNode) error {
	s.written.count++
	node.ResourceVersion = strconv.Itoa(s.written.count)
	return s.nodes.Tracker.Update(v1beta1.GroupVersion.WithResource("gpunodes"), node, "")
}

func (s *steered) get() (*v1beta1.GPUNode, error) {
	object, err := s.nodes.Tracker.Get(v1beta1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName)
	if err != nil {
		return nil, err
	}
	return object.(*v1beta1.GPUNode).DeepCopy(), nil
}

// await waits until the plugin's report is as a test wants it.
func (s *steered) await(what string, ok func(*v1beta1.NodeReport) bool) *v1beta1.NodeReport {
	s.t.Helper()
	var last *v1beta1.GPUNode
	require.Eventually(s.t, func() bool {
		last, _ = s.get()
		return last != nil && last.Status.Node != nil && ok(last.Status.Node)
	}, nodetest.Patience, nodetest.Tick, what)
	return last.Status.Node
}

// ask has the plugin answer a switch in one of its states.
func (s *steered) ask(state v1beta1.State, from, to v1beta1.ProfileSnapshot) *v1beta1.Task {
	s.t.Helper()
	s.last++
	return s.put(state, &v1beta1.Switch{ID: fmt.Sprint(s.last), From: from, To: to, Policy: s.policy})
}

// askAgain has the plugin answer the same switch in its next state.
func (s *steered) askAgain(state v1beta1.State) *v1beta1.Task {
	s.t.Helper()
	node, err := s.get()
	require.NoError(s.t, err)
	return s.put(state, node.Status.Switch)
}

func (s *steered) put(state v1beta1.State, sw *v1beta1.Switch) *v1beta1.Task {
	s.t.Helper()
	s.order(state, sw)
	return s.await("no answer to "+string(state), func(r *v1beta1.NodeReport) bool {
		return r.Task != nil && r.Task.SwitchID == sw.ID && r.Task.State == state
	}).Task
}

// order puts a switch into a state, whether the plugin has something to answer or not.
func (s *steered) order(state v1beta1.State, sw *v1beta1.Switch) {
	s.t.Helper()
	s.written.Lock()
	defer s.written.Unlock()
	node, err := s.get()
	require.NoError(s.t, err)
	node.Status.State, node.Status.Switch = state, sw
	require.NoError(s.t, s.update(node))
}

// wish is a profile of these rules.
func snapshot(t *testing.T, profile, rules string) v1beta1.ProfileSnapshot {
	t.Helper()
	var parsed []v1beta1.Rule
	require.NoError(t, yaml.UnmarshalStrict([]byte(rules), &parsed))
	w := ours.Snapshot(profile, parsed)
	w.Source, w.Hash = v1beta1.FromSpec, "hash of "+profile
	return w
}

var nothing = v1beta1.ProfileSnapshot{Source: v1beta1.FromNone}

// putOrder is put for a further order in state Tainted.
func (s *steered) putOrder(sw *v1beta1.Switch) *v1beta1.Task {
	s.t.Helper()
	s.order(v1beta1.Tainted, sw)
	return s.await("no answer to the order", func(r *v1beta1.NodeReport) bool {
		return r.Task != nil && r.Task.SwitchID == sw.ID && r.Task.State == v1beta1.Tainted && r.Task.TaintGeneration == sw.TaintGeneration
	}).Task
}
