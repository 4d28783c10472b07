package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// lines hands over each line that is written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(bytes.TrimSpace(p))
	return len(p), nil
}

// waiting is a wait under way.
type waiting struct {
	said lines
	done chan error
	ours *clientfake.Client
}

func startWaiting(ctx context.Context, profile string, n *v1beta1.GPUNode) *waiting {
	w := &waiting{said: make(lines), done: make(chan error, 1), ours: clientfake.New(n)}
	r := newRun(nil, nodeNamed("node-a"))
	r.Ours, r.out, r.flags.timeout = w.ours, w.said, 0
	go func() { w.done <- r.wait(ctx, profile) }()
	return w
}

// watches waits for the watch: what comes before is not seen by one in memory.
func (w *waiting) watches(t *testing.T) {
	require.Eventually(t, func() bool {
		for _, a := range w.ours.Actions() {
			if a.GetVerb() == "watch" {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

func (w *waiting) change(t *testing.T, n *v1beta1.GPUNode) {
	w.watches(t)
	_, err := w.ours.GPUNodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestWaitTellsEachStep(t *testing.T) {
	w := startWaiting(t.Context(), "cpx", follows("node-a", "spx"))
	assert.Equal(t, "Waiting for the controller.", <-w.said)
	switching := func(state v1beta1.State, doing string) *v1beta1.GPUNode {
		return &gpunodes.WithProfile("node-a", "spx").Switches(state, "cpx", doing, "gpu-a").GPUNode
	}
	draining := switching(v1beta1.Draining, "evicts pods from gpu-a: pod team/train-0")
	w.change(t, draining)
	assert.Equal(t, "Draining: evicts pods from gpu-a: pod team/train-0.", <-w.said)
	draining.Status.Switch.EvictedPodCount++ // nothing that is reported again
	w.change(t, draining)
	w.change(t, switching(v1beta1.Applying, ""))
	assert.Equal(t, "Applying.", <-w.said)
	w.change(t, follows("node-a", "cpx"))
	assert.Equal(t, "Profile cpx is applied on node-a.", <-w.said)
	require.NoError(t, <-w.done)
}

func TestWaitEnds(t *testing.T) {
	spec := follows("node-a", "cpx")
	spec.Annotations, spec.Status.Desired.Source = nil, v1beta1.FromSpec
	for name, test := range map[string]struct {
		profile   string
		node      *v1beta1.GPUNode
		says, err string
	}{
		"there already": {"cpx", follows("node-a", "cpx"), "Profile cpx is applied on node-a.", ""},
		"unset":         {"", spec, "The profile without the label is applied on node-a.", ""},
		"failed": {"cpx", &gpunodes.WithProfile("node-a", "spx").Fails("cpx", "DrainDeadline", "not all pods left", true).GPUNode, "",
			"the profile is not applied (DrainDeadline): not all pods left; it is retried at 13:58:00 UTC"},
		"never": {"cpx", &gpunodes.WithProfile("node-a", "spx").Fails("cpx", "ProfileDoesNotFit", "no such GPU", false).GPUNode, "",
			"the profile is not applied (ProfileDoesNotFit): no such GPU; it is retried when the profile, its policy, the GPUs or the plugin's settings change"},
		"conflict": {"cpx", &gpunodes.WithProfile("node-a", "").Says(names.ConditionConflicted, true, "OtherSystem", "mig-manager serves the node").GPUNode, "",
			"the profile is not applied: mig-manager serves the node"},
		"paused meanwhile": {"cpx", &gpunodes.WithProfile("node-a", "spx").Says(names.ConditionReady, true, names.ReasonPaused, "spec.paused is true").GPUNode, "",
			"the profile is not applied: spec.paused is true"},
		"deleted meanwhile": {"cpx", &gpunodes.WithProfile("node-a", "spx").Says(names.ConditionReady, false, names.ReasonProfileNotFound,
			"the node's label tranche.dev/profile names PartitionProfile cpx, which does not exist; existing profiles: spx").GPUNode, "",
			"PartitionProfile cpx does not exist, and there are no others"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWaiting(t.Context(), test.profile, test.node)
			if test.says != "" {
				assert.Equal(t, test.says, <-w.said)
			}
			if err := <-w.done; test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
}

// A failure of another profile, before the controller took notice, is not this one's.
func TestWaitOverlooksWhatWasBefore(t *testing.T) {
	far := cluster.ProgressOf(&gpunodes.WithProfile("node-a", "spx").Fails("old", "InUse", "", true).GPUNode)
	done, err := arrived(far, "cpx")
	require.NoError(t, err)
	assert.False(t, done)
	r := &profileRun{}
	assert.Equal(t, "Waiting for the controller.", r.step(far, "cpx"))
	assert.Equal(t, "Waiting for the switch to start.", r.step(cluster.Progress{Desired: v1beta1.ProfileSnapshot{ProfileName: "cpx", Source: v1beta1.FromLabel}, Label: names.LabelProfile + "=cpx"}, "cpx"))
	pending := gpunodes.WithProfile("node-a", "spx").Says(names.ConditionRolloutPending, true, names.ReasonWaitsForNodes, "profile cpx waits for other nodes: node-b")
	assert.Equal(t, "Profile cpx waits for other nodes: node-b.", r.step(cluster.ProgressOf(&pending.GPUNode), "cpx"))
	far = cluster.ProgressOf(&gpunodes.WithProfile("node-a", "spx").Switches(v1beta1.RollingBack, "old", "puts back").GPUNode)
	gone := cluster.ProgressOf(&gpunodes.WithProfile("node-a", "spx").Says(names.ConditionReady, false, names.ReasonProfileNotFound, "names PartitionProfile old, which does not exist").GPUNode)
	done, err = arrived(gone, "cpx")
	require.NoError(t, err)
	assert.False(t, done)
	assert.Equal(t, "RollingBack: puts back.", r.step(far, "cpx"), "it ends first")
}

func TestWaitIsGivenUp(t *testing.T) {
	const unnoticed = "the profile is not applied, and the controller has not noticed the label; see whether it runs: kubectl get pods -A -l app.kubernetes.io/component=controller"
	ctx, cancel := context.WithCancel(t.Context())
	w := startWaiting(ctx, "cpx", follows("node-a", "spx"))
	<-w.said
	cancel()
	require.EqualError(t, <-w.done, unnoticed)

	var out bytes.Buffer
	r := newRun(&out, nodeNamed("node-a"), follows("node-a", "spx"))
	r.flags.timeout = time.Nanosecond
	require.EqualError(t, r.wait(t.Context(), "cpx"), unnoticed)

	ctx, cancel = context.WithCancel(t.Context())
	w = startWaiting(ctx, "cpx", &gpunodes.WithProfile("node-a", "spx").Switches(v1beta1.Draining, "cpx", "", "gpu-a").GPUNode)
	<-w.said
	cancel()
	require.EqualError(t, <-w.done, "the profile is not applied yet; it goes on: kubectl tranche node node-a shows it")
}

func TestWaitForADeletedNode(t *testing.T) {
	w := startWaiting(t.Context(), "cpx", follows("node-a", "spx"))
	<-w.said
	w.watches(t)
	require.NoError(t, w.ours.GPUNodes().Delete(t.Context(), "node-a", metav1.DeleteOptions{}))
	require.EqualError(t, <-w.done, "GPUNode node-a was deleted")
}

// On a terminal, a step replaces the one before.
func TestWaitTellsStepsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	r := newRun(&out, nodeNamed("node-a"))
	r.screen = func() picture.Screen { return picture.Screen{Width: 30, Live: true} }
	live := picture.Live{Out: &out}
	require.NoError(t, r.tell(&live, "Waiting for the controller."))
	require.NoError(t, r.tell(&live, "Draining: evicts pods from gpu-a and gpu-b."))
	assert.Equal(t, "Waiting for the controller.\n\r\x1b[A\x1b[JDraining: evicts pods from\ngpu-a and gpu-b.\n", out.String())
}
