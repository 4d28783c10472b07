package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/nodetest/rig"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// A switch from the first plan to the end, and back.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	w.see(v1beta1.GPUNodeStatus{})
	assert.True(t, w.rig.Applied.Undecided())
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	assert.False(t, w.rig.Applied.Undecided(), "the controller has decided that the node has no profile")
	assert.Nil(t, w.last().Task)
	assert.Len(t, w.reports, 1)

	halves := snapshotOf(t, "halves", twoHalves)
	sw := &v1beta1.Switch{ID: "1", From: none, To: halves}
	task := w.answered(v1beta1.Planning, sw)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	assert.Len(t, task.Changes, 2)
	assert.Zero(t, task.TaintGeneration)
	assert.Empty(t, w.rig.Taints())
	w.answered(v1beta1.Planning, sw)
	assert.Len(t, w.reports, 2, "nothing is new")

	sw.GPUs, sw.TaintGeneration = []string{rig.GPU0, rig.GPU1}, 1
	task = w.answered(v1beta1.Tainted, sw)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	assert.EqualValues(t, 1, task.TaintGeneration)
	assert.Equal(t, &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 1}, w.last().PublishedTaints)
	assert.Equal(t, []string{"switching=halves"}, w.rig.Taints()[rig.GPU0])

	before, hash := w.rig.Changes, w.last().GPUs[0].SliceHash
	task = w.answered(v1beta1.Applying, sw)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Equal(t, before+1, w.rig.Changes, "the GPUs are not checked meanwhile")
	assert.Len(t, w.rig.Partitions(), 4)
	assert.Equal(t, "hash of halves", w.last().AppliedHash)
	assert.Len(t, w.last().GPUs[0].Partitions, 2)
	assert.NotEqual(t, hash, w.last().GPUs[0].SliceHash)
	published, err := w.Publisher.Stored(t.Context())
	require.NoError(t, err)
	assert.Equal(t, publish.DigestsOf(nodetest.NodeName, published).Of(rig.GPU0), w.last().GPUs[0].SliceHash, "the controller compares them at once")

	task = w.answered(v1beta1.RollingBack, sw)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Empty(t, w.rig.Partitions())
	assert.Empty(t, w.last().AppliedHash)

	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	assert.Nil(t, w.last().PublishedTaints, "the end of the taints is reported at once")
	w.rig.AwaitNoTaints()
}

// The plugin answers what an earlier run has not, and nothing that is older than what it has read.
func TestStepsOfALaterRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	sw := &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves)}
	done := &v1beta1.Task{SwitchID: "1", State: v1beta1.Applying, Phase: v1beta1.TaskDone, Message: "by the earlier run"}
	since := metav1.NewTime(time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC))
	w.rig.Problems = map[string]gpu.Problem{rig.PCI1: {Message: "lost"}}
	w.rig.Look(t.Context())
	before := &v1beta1.NodeReport{Task: done, UnhealthyGPUs: []v1beta1.UnhealthyGPU{{Name: rig.GPU1, DetectionTime: since}}}
	w.readVersion = "7"
	w.deliver(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, ResourceVersion: "6"}, Status: v1beta1.GPUNodeStatus{State: v1beta1.Applying, Switch: sw}})
	w.step(w.rig.Context)
	assert.Empty(t, w.reports)
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Applying, Switch: sw, Node: before})
	assert.Equal(t, done, w.last().Task)
	require.Len(t, w.last().UnhealthyGPUs, 1)
	assert.True(t, w.last().UnhealthyGPUs[0].DetectionTime.Equal(&since), "it has been so since the earlier run")
	assert.Empty(t, w.rig.Partitions())

	// Another GPUNode has no report, so that it gets one although nothing is new.
	reports := len(w.reports)
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	assert.Len(t, w.reports, reports)
	w.deliver(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "second"}})
	w.step(w.rig.Context)
	assert.Len(t, w.reports, reports+1)
}

// A missing GPUNode is created, and requests nothing.
func TestGPUNodeIsCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	sw := &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves), GPUs: []string{rig.GPU0}, TaintGeneration: 1}
	w.answered(v1beta1.Tainted, sw)
	require.NotEmpty(t, w.rig.Taints())
	require.NoError(t, w.informer.GetStore().Replace(nil, ""))
	var answer error
	clientfake.React(&w.nodes.Fake, "create", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
	answer = errors.New("no CRD")
	w.step(w.rig.Context)
	assert.NotEmpty(t, w.rig.Taints(), "it may be there")
	answer = nil
	w.step(w.rig.Context)
	node, err := w.nodes.GPUNodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, "node-uid", node.OwnerReferences[0].UID)
	w.rig.AwaitNoTaints()
	w.Publisher.SetSwitchTaints(w.rig.Context, publisher.SwitchTaints{Value: "p", GPUs: []string{rig.GPU0}})
	w.step(w.rig.Context) // the watch has not delivered it
	by, _ := w.Publisher.PublishedFor()
	w.rig.Await("what it requests is not known", func() bool { return len(w.rig.Taints()) > 0 })
	assert.Empty(t, by)
	reports := len(w.reports)
	w.deliver(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "second"}})
	w.step(w.rig.Context)
	assert.Len(t, w.reports, reports+1, "a new one has no report")
}

// There is no plan before the API server has the taints, or while the claims of the node cannot be read.
func TestNoPlanYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	sw := &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves), GPUs: []string{rig.GPU0}, TaintGeneration: 1}
	tried := func() {
		select {
		case <-w.wake:
		case <-time.After(nodetest.Patience):
			require.Fail(t, "it is not tried again")
		}
	}
	ended, cancel := context.WithCancel(w.rig.Context)
	cancel()
	assert.Nil(t, w.answer(ended, sw, v1beta1.Tainted))
	tried()
	claims := filepath.Join(filepath.Dir(w.rig.CDIDir), "claims")
	require.NoError(t, os.Rename(claims, claims+".away"))
	require.NoError(t, os.WriteFile(claims, nil, 0o600))
	w.rig.Records.ReadAgain()
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Tainted, Switch: sw})
	assert.Nil(t, w.last().Task)
	assert.NotNil(t, w.last().PublishedTaints)
	tried()
	require.NoError(t, os.Remove(claims))
	require.NoError(t, os.Rename(claims+".away", claims))
	assert.Equal(t, v1beta1.TaskPlanned, w.answered(v1beta1.Tainted, sw).Phase)
}

// Each step reserves what a defragmentation asks for, and publishes what claims have taken or released
// meanwhile.
func TestStepFollowsReservationsAndClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	status := v1beta1.GPUNodeStatus{
		State:           v1beta1.Draining,
		Switch:          &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves), GPUs: []string{rig.GPU0}, TaintGeneration: 1, Withhold: true},
		Defragmentation: &v1beta1.Defragmentation{ID: "d", ReservedDevices: []string{rig.GPU1}, DeadlineTime: metav1.NewMicroTime(time.Now().Add(time.Hour))},
	}
	w.see(status)
	w.hold("a", false, nodetest.HeldDevice(small(t, w), "", false))
	w.see(status)
	w.rig.Await("the devices are published", func() bool {
		return assert.ObjectsAreEqual(map[string][]string{small(t, w).Name(): {"switching=halves"}, rig.GPU1: {"reserved=d"}}, w.rig.Taints())
	})
}

// A change that the end of the plugin interrupts is no answer.
func TestNoAnswerAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	ctx, cancel := context.WithCancel(w.rig.Context)
	w.rig.During = cancel
	w.deliver(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, UID: "first"}, Status: v1beta1.GPUNodeStatus{
		State: v1beta1.Applying, Switch: &v1beta1.Switch{ID: "1", To: snapshotOf(t, "halves", twoHalves)},
	}})
	w.step(ctx)
	assert.Nil(t, w.task)
	assert.Len(t, w.reports, 1)
}

// After a reboot the profile is applied. If that succeeds, the reboot does not count any more.
func TestAfterReboot(t *testing.T) {
	t.Parallel()
	for phase, faults := range map[v1beta1.TaskPhase]nvdriver.Faults{v1beta1.TaskFailed: createFails, v1beta1.TaskDone: {}} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t, "A100-80GB")
			w.rig.SetFaults(nvdriver.Faults{Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}}})
			sw := &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves), Policy: v1beta1.SwitchPolicy{Reboot: v1beta1.RebootIfRequired}}
			require.Equal(t, v1beta1.TaskRebootRequired, w.answered(v1beta1.Applying, sw).Phase, "the GPUs cannot be reset")
			w.see(v1beta1.GPUNodeStatus{State: v1beta1.Rebooting, Switch: sw})
			assert.Equal(t, v1beta1.Applying, w.last().Task.State, "no answer before the reboot")
			assert.FileExists(t, w.RebootFile)
			nodetest.AwaitEvent(t, w.rig.API, names.EventRebooting, "profile halves")
			w.rig.SetFaults(faults)
			task := w.answered(v1beta1.Rebooting, sw)
			require.Equal(t, phase, task.Phase, task.Message)
			if phase == v1beta1.TaskDone {
				assert.NoFileExists(t, w.RebootFile)
				assert.Len(t, w.rig.Partitions(), 4)
			} else {
				assert.FileExists(t, w.RebootFile, "it counts for the next switch to the profile")
			}
		})
	}
}

// A machine that cannot write down why it reboots does not.
func TestRebootWithoutARecord(t *testing.T) {
	m := &machine{boot: "one"}
	f := following(t, m)
	f.RebootFile = t.TempDir() + "/missing/reboot.json"
	task := f.reboot(t.Context(), needingReboot("1", "h"))
	require.NotNil(t, task)
	assert.Equal(t, names.ReasonRebootFailed, task.Reason)
	assert.Contains(t, task.Message, "write the record of the reboot to "+f.RebootFile)
	assert.Zero(t, m.reboots)
}

// What was lost with a reload of the driver is made again, after a pause if that fails.
func TestRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	w.see(v1beta1.GPUNodeStatus{State: v1beta1.Idle})
	assert.Equal(t, 1, w.rig.Changes, "once per load of the drivers")
	require.Equal(t, v1beta1.TaskDone, w.answered(v1beta1.Applying, &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves", twoHalves)}).Phase)

	busy := v1beta1.GPUNodeStatus{State: v1beta1.Draining} // reports come at once
	w.rig.SetFaults(createFails)
	w.rig.RemovePartitions()
	w.restored, w.restorePause = "another load", 8*time.Minute
	w.see(busy)
	assert.Equal(t, firstRestore, w.restorePause, "what failed for another load does not count")
	assert.Contains(t, w.last().GPUs[0].Pending, "the profile could not be restored, which is retried: ")
	assert.Contains(t, nodetest.AwaitEvent(t, w.rig.API, names.EventProfileNotRestored, ""), "which is retried: ")
	w.reportRestored(w.rig.Context, errors.New("another reason"))
	nodetest.AwaitEvent(t, w.rig.API, names.EventProfileNotRestored, "another reason")
	w.rig.SetFaults(nvdriver.Faults{})
	changes := w.rig.Changes
	w.see(busy)
	assert.Equal(t, changes, w.rig.Changes, "not before the pause is over")
	w.restoreAgain = time.Now().Add(-time.Nanosecond)
	w.see(busy)
	assert.Len(t, w.rig.Partitions(), 4)
	assert.Empty(t, w.last().GPUs[0].Pending)

	ctx, cancel := context.WithCancel(w.rig.Context)
	w.restored, w.rig.During = "another load", cancel
	w.restore(ctx)
	assert.Equal(t, "another load", w.restored, "the next plugin continues")
	assert.NoError(t, w.notRestored)
}

// Run does nothing while another plugin works on the node. Then it takes a step whenever the GPUNode
// changes.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	run := func() (end func()) {
		ctx, cancel := context.WithCancel(w.rig.Context)
		ended := make(chan struct{})
		go func() { w.Run(ctx); close(ended) }()
		w.rig.Await("the GPUNodes are read", w.informer.HasSynced)
		return func() { cancel(); <-ended }
	}
	created := func() bool {
		_, err := w.nodes.Tracker.Get(v1beta1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName)
		return err == nil
	}
	run()()
	assert.False(t, created())

	w.Follower = New(w.Config)
	w.TakeOver()
	end := run()
	w.rig.Await("no GPUNode", created)
	w.rig.Await("nothing is reported", func() bool {
		for _, a := range w.nodes.Actions() {
			if a.GetVerb() == "patch" {
				return true
			}
		}
		return false
	})
	end()
}
