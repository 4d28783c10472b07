package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client/clientfake"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/node/nodetest"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
	"github.com/tranche-dev/tranche/pkg/simulate/nvstate"
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
	policy v1alpha1.SwitchPolicy
	// onReport sees each report before it is written; nil: nobody does.
	onReport func(*v1alpha1.NodeReport)
}

func steer(m *machine) *steered {
	s := &steered{machine: m, nodes: clientfake.New(), written: &writes{}}
	s.nodes.PrependReactor("patch", "gpunodes", s.applyReport)
	// The chart lets the plugin list, watch, create and report.
	for _, verb := range []string{"get", "update", "delete"} {
		s.nodes.PrependReactor(verb, "gpunodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
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
	node.Status.Node = &v1alpha1.NodeReport{}
	if err := json.Unmarshal(body.Status["node"], node.Status.Node); err != nil {
		return true, nil, err
	}
	if s.onReport != nil {
		s.onReport(node.Status.Node)
	}
	return true, node, s.update(node)
}

// update writes the GPUNode. The caller holds the lock since it has read it.
func (s *steered) update(node *v1alpha1.GPUNode) error {
	s.written.count++
	node.ResourceVersion = strconv.Itoa(s.written.count)
	return s.nodes.Tracker.Update(v1alpha1.GroupVersion.WithResource("gpunodes"), node, "")
}

func (s *steered) get() (*v1alpha1.GPUNode, error) {
	object, err := s.nodes.Tracker.Get(v1alpha1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName)
	if err != nil {
		return nil, err
	}
	return object.(*v1alpha1.GPUNode).DeepCopy(), nil
}

// await waits until the plugin's report is as a test wants it.
func (s *steered) await(what string, ok func(*v1alpha1.NodeReport) bool) *v1alpha1.NodeReport {
	s.t.Helper()
	var last *v1alpha1.GPUNode
	require.Eventually(s.t, func() bool {
		last, _ = s.get()
		return last != nil && last.Status.Node != nil && ok(last.Status.Node)
	}, nodetest.Patience, nodetest.Tick, what)
	return last.Status.Node
}

// ask has the plugin answer a switch in one of its states.
func (s *steered) ask(state v1alpha1.State, from, to v1alpha1.ProfileSnapshot) *v1alpha1.Task {
	s.t.Helper()
	s.last++
	return s.put(state, &v1alpha1.Switch{ID: fmt.Sprint(s.last), From: from, To: to, Policy: s.policy})
}

// askAgain has the plugin answer the same switch in its next state.
func (s *steered) askAgain(state v1alpha1.State) *v1alpha1.Task {
	s.t.Helper()
	node, err := s.get()
	require.NoError(s.t, err)
	return s.put(state, node.Status.Switch)
}

func (s *steered) put(state v1alpha1.State, sw *v1alpha1.Switch) *v1alpha1.Task {
	s.t.Helper()
	s.order(state, sw)
	return s.await("no answer to "+string(state), func(r *v1alpha1.NodeReport) bool {
		return r.Task != nil && r.Task.Switch == sw.ID && r.Task.State == state
	}).Task
}

// order puts a switch into a state, whether the plugin has something to answer or not.
func (s *steered) order(state v1alpha1.State, sw *v1alpha1.Switch) {
	s.t.Helper()
	s.written.Lock()
	defer s.written.Unlock()
	node, err := s.get()
	require.NoError(s.t, err)
	node.Status.State, node.Status.Switch = state, sw
	require.NoError(s.t, s.update(node))
}

// wish is a profile of these rules.
func snapshot(t *testing.T, profile, rules string) v1alpha1.ProfileSnapshot {
	t.Helper()
	w := v1alpha1.ProfileSnapshot{Profile: profile, Source: v1alpha1.FromLabel, Hash: "hash of " + profile}
	require.NoError(t, yaml.UnmarshalStrict([]byte(rules), &w.Rules))
	return w
}

var nothing = v1alpha1.ProfileSnapshot{Source: v1alpha1.FromDefault}

// The plugin makes its GPUNode, which goes with the node, and says how the node is.
func TestReportInGPUNode(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, _ := s.start()
	report := s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	node, err := s.get()
	require.NoError(t, err)
	require.Len(t, node.OwnerReferences, 1)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: nodetest.NodeName, UID: node.OwnerReferences[0].UID}, node.OwnerReferences[0])
	assert.NotEmpty(t, report.BootID)
	assert.Empty(t, report.Applied)
	require.Len(t, report.GPUs, 2)
	assert.Equal(t, card0, report.GPUs[0].Name)
	assert.Equal(t, "MIG off", report.GPUs[0].Mode)
	assert.Contains(t, report.GPUs[0].Product, "H100")

	s.last = 41
	s.ask(v1alpha1.Planning, nothing, snapshot(t, "dynamic", "[{mig: {mode: Dynamic}}]")) // reports come at once now
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	report = s.await("what is held is not reported", func(r *v1alpha1.NodeReport) bool { return r.Held == 1 && r.Free == r.Count-1 })
	assert.Equal(t, []string{small0}, report.GPUs[0].Held)
	assert.Equal(t, []string{small0}, report.GPUs[0].Partitions)
	require.Empty(t, k.unprepare(a))
	s.await("what is released is still reported", func(r *v1alpha1.NodeReport) bool { return r.Held == 0 && r.Free == r.Count })
}

// devicesOn are the devices of a GPU that the API server has.
func devicesOn(t *testing.T, m *machine, gpuID string) []resourceapi.Device {
	t.Helper()
	list, err := m.api.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var devices []resourceapi.Device
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if gpu.OfDevice(d.Name) == gpuID {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

func deviceNames(devices []resourceapi.Device) []string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

// The GPUs are cut as a static profile wants it; claims get what is there, and leave
// it; a restart of the plugin and of the machine change nothing; and it goes back.
func TestStaticProfile(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	task := s.ask(v1alpha1.Planning, nothing, sevens)
	require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 2)
	assert.Empty(t, s.partitions())

	task = s.ask(v1alpha1.Applying, nothing, sevens)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 14)
	published := func() bool {
		devices := devicesOn(t, s.machine, card0)
		node, err := s.get()
		return err == nil && len(devices) == 7 && node.Status.Node.Applied == sevens.Hash && node.Status.Node.GPUs[0].Slice == publish.Digest(devices)
	}
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "the slices have not what the report says")

	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))
	assert.Len(t, s.partitions(), 14)

	stop()
	k, _ = s.start()
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "a restart changes what is published")
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))

	task = s.ask(v1alpha1.Applying, sevens, snapshot(t, "dynamic", "[{mig: {mode: Dynamic}}]"))
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	assert.Empty(t, s.partitions())
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) > 20 }, nodetest.Patience, nodetest.Tick, "not all is offered again")
	k.works(nodetest.Allocate(t, s.api, "b", card0))
}

// What a claim holds stays published, and is given to nobody else, until it is
// released.
func TestNoLongerOffered(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, _ := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	halves := snapshot(t, "halves", "[{mig: {mode: Dynamic, profiles: [3g.40gb]}}]")
	task := s.ask(v1alpha1.Planning, nothing, halves)
	require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
	assert.Empty(t, task.Changes, "nobody has to leave")
	task = s.ask(v1alpha1.Applying, nothing, halves)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	tainted := func(d resourceapi.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Key == v1alpha1.TaintNotOffered && d.Taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule
	}
	require.Eventually(t, func() bool {
		for _, d := range devicesOn(t, s.machine, card0) {
			if strings.Contains(d.Name, "-mig-1g-10gb-") && (d.Name != small0 || !tainted(d)) {
				return false
			}
		}
		return true
	}, nodetest.Patience, nodetest.Tick)
	report := s.await("that it waits is not said", func(r *v1alpha1.NodeReport) bool { return r.GPUs[0].Pending != "" })
	assert.Contains(t, report.GPUs[0].Pending, small0+" is not offered any more when it is released")
	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool {
		names := strings.Join(deviceNames(devicesOn(t, s.machine, card0)), " ")
		return !strings.Contains(names, "1g-10gb") && strings.Contains(names, half0)
	}, nodetest.Patience, nodetest.Tick)
}

// A profile that does not fit is refused before anything is touched.
func TestProfileDoesNotFit(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	task := s.ask(v1alpha1.Planning, nothing, snapshot(t, "cut", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 8}]}}]"))
	assert.Equal(t, v1alpha1.TaskRefused, task.Phase)
	assert.Contains(t, task.Message, "1g.10gb")
	assert.Empty(t, s.partitions())
}

// How the GPUs are shared comes with the profile.
func TestSharingOfProfile(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	task := s.ask(v1alpha1.Applying, nothing, snapshot(t, "four", "[{sharing: {replicas: 4}}]"))
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Eventually(t, func() bool {
		for _, d := range devicesOn(t, s.machine, card0) {
			if d.Name == fraction0 {
				quantity := d.Capacity["fraction"].RequestPolicy.Default
				return quantity.String() == "250m"
			}
		}
		return false
	}, nodetest.Patience, nodetest.Tick)
}

// A GPU that changes its MIG mode by a reset only, which is refused: the node is
// rebooted where the profile allows it, and the switch is finished then.
func TestRebootForProfile(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.write("inventories/two.yaml", strings.Replace(twoGPUs, "H100-80GB", "A100-80GB", 1))
	s := steer(m)
	s.start()
	first := s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	assert.Equal(t, "MIG off", first.GPUs[0].Mode)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}}}))
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	s.policy = v1alpha1.SwitchPolicy{Reboot: v1alpha1.RebootAllowed}
	task := s.ask(v1alpha1.Applying, nothing, sevens)
	require.Equal(t, v1alpha1.TaskRebootRequired, task.Phase, task.Message)
	task = s.askAgain(v1alpha1.Rebooting)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	report := s.await("no boot id", func(r *v1alpha1.NodeReport) bool { return r.BootID != first.BootID })
	assert.Equal(t, "MIG on", report.GPUs[0].Mode)
	assert.Len(t, s.partitions(), 14)

	// Without the permission the mode is as it was.
	s.policy = v1alpha1.SwitchPolicy{}
	task = s.ask(v1alpha1.Applying, sevens, snapshot(t, "whole", "[{mig: {mode: Disabled}}]"))
	require.Equal(t, v1alpha1.TaskRebootRequired, task.Phase, task.Message)
}

// A GPU that fails after every boot: the node is not rebooted for ever.
func TestRebootsForOneProfileAreLimited(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.write("inventories/two.yaml", strings.Replace(twoGPUs, "H100-80GB", "A100-80GB", 1))
	s := steer(m)
	s.start()
	before := s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{
		Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}},
		Calls:  []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}},
	}))
	s.policy = v1alpha1.SwitchPolicy{Reboot: v1alpha1.RebootAllowed}
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	whole := snapshot(t, "whole", "[{mig: {mode: Disabled}}]")
	for range follow.MostReboots {
		s.ask(v1alpha1.Applying, whole, sevens)
		task := s.askAgain(v1alpha1.Rebooting)
		require.Equal(t, v1alpha1.TaskFailed, task.Phase, task.Message)
		assert.NotEqual(t, v1alpha1.ReasonNeedsReset, task.Reason, task.Message)
		after := s.await("not rebooted", func(r *v1alpha1.NodeReport) bool { return r.BootID != before.BootID })
		before = after
	}
	s.ask(v1alpha1.Applying, whole, sevens)
	task := s.askAgain(v1alpha1.Rebooting)
	require.Equal(t, v1alpha1.TaskFailed, task.Phase, task.Message)
	assert.Equal(t, v1alpha1.ReasonNeedsReset, task.Reason, "the controller does not try that again by itself")
	assert.Contains(t, task.Message, "was rebooted 2 times for profile all-1g.10gb")
}

// While Tranche is uninstalled, a GPUNode that was taken away does not come back; it
// does if the plugin goes back to work.
func TestGPUNodeWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	var uninstalling, meanwhile atomic.Bool
	s.nodes.PrependReactor("create", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if uninstalling.Load() {
			meanwhile.Store(true)
		}
		return false, nil, nil
	})
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	order(t, s.api, "uninstalling", "false", "1")
	awaitNoSlices(t, s.api)
	uninstalling.Store(true)
	require.NoError(t, s.nodes.Tracker.Delete(v1alpha1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName))
	assert.False(t, meanwhile.Load())
	uninstalling.Store(false)
	order(t, s.api, "cancelled", "false", "2")
	s.await("it does not come back", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
}

// What a profile has made goes before the GPUs are withdrawn; who uninstalls and does
// not find that possible after all gets it again.
func TestStaticProfileWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	k, _ := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	task := s.ask(v1alpha1.Applying, nothing, sevens)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 14)
	s.await("not applied", func(r *v1alpha1.NodeReport) bool { return r.Applied == sevens.Hash })

	order(t, s.api, "uninstalling", "false", "1")
	awaitNoSlices(t, s.api)
	assert.Empty(t, s.partitions())
	order(t, s.api, "cancelled", "false", "2")
	s.await("the controller is not told", func(r *v1alpha1.NodeReport) bool { return r.Applied == "" })
	task = s.ask(v1alpha1.Applying, sevens, sevens)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 14)
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) == 7 }, nodetest.Patience, nodetest.Tick, "they are not given out again")

	// By force, what a claim holds stays, and goes with it.
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	order(t, s.api, "uninstalling", "false", "3")
	nodetest.AwaitEvent(t, s.api, "Uninstalling", "withdrawn")
	assert.Len(t, s.partitions(), 14, "nothing is removed while a claim holds something")
	order(t, s.api, "uninstalling", "true", "4")
	awaitNoSlices(t, s.api)
	assert.Equal(t, []string{small0}, s.partitions())
	require.Empty(t, k.unprepare(a))
	assert.Empty(t, s.partitions())
}

// A partition that a process keeps stands in the way, unless force is set.
func TestStaticPartitionInUseWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	one := snapshot(t, "one", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 1}]}}]")
	task := s.ask(v1alpha1.Applying, nothing, one)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 2)
	inUse := nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GpuInstanceDestroy", GPU: "*", Error: nvdriver.Return(nvml.ERROR_IN_USE)}}}
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, inUse))
	order(t, s.api, "uninstalling", "false", "1")
	nodetest.AwaitEvent(t, s.api, "Uninstalling", "withdrawn")
	assert.Len(t, nodetest.SlicesOf(t, s.api, gpu.DriverName), slicesOfTwoGPUs)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	awaitNoSlices(t, s.api)
	assert.Empty(t, s.partitions())

	order(t, s.api, "cancelled", "false", "2")
	task = s.ask(v1alpha1.Applying, one, one)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, inUse))
	order(t, s.api, "uninstalling", "true", "3")
	awaitNoSlices(t, s.api)
	assert.Len(t, s.partitions(), 2)
}
