package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// TestWordsOfTheController: what is read here is what the controller writes. It is
// not imported otherwise, since it is large.
func TestWordsOfTheController(t *testing.T) {
	g := v1beta1.GPUReport{Name: "gpu-a", GPUModes: v1beta1.GPUModes{ComputePartition: "SPX", MemoryPartition: "NPS1"}}
	n := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	n.Status.Node = &v1beta1.NodeReport{GPUCount: 1, GPUs: []v1beta1.GPUReport{g}, AppliedHash: "old"}
	n.Status.Applied = &v1beta1.ProfileSnapshot{ProfileName: "spx", Source: v1beta1.FromSpec, Hash: "old"}
	pause := false
	choice := state.Choice{
		Desired: &v1beta1.ProfileSnapshot{ProfileName: "cpx", Source: v1beta1.FromSpec, Hash: "new"},
		Policy:  v1beta1.SwitchPolicy{DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute}, AfterDeadline: v1beta1.GiveUp, PauseMonitoring: &pause},
	}
	machine := &state.Machine{Deadlines: state.DefaultDeadlines()}
	step := machine.Next(n, &state.Facts{Now: now, Choice: choice})
	n.Status = step.Status
	far := cluster.ProgressOf(n)
	assert.Equal(t, "profile spx → cpx", far.Title())
	assert.Equal(t, v1beta1.Planning, far.State)
	assert.Contains(t, far.Doings(now), "left: the node's plugin plans which GPUs have to change")

	n.Status.Node.Task = &v1beta1.Task{SwitchID: n.Status.Switch.ID, State: v1beta1.Planning, Phase: v1beta1.TaskRefused,
		Reason: names.ReasonProfileDoesNotFit, Message: "gpu-a has no mode CPX"}
	n.Status = machine.Next(n, &state.Facts{Now: now, Choice: choice}).Status
	far = cluster.ProgressOf(n)
	assert.Equal(t, "Failed 0s ago (ProfileDoesNotFit): profile cpx could not be applied: gpu-a has no mode CPX. The node is unchanged, with profile spx. "+
		"It is retried when the profile, its policy, the GPUs or the plugin's settings change.", far.Sentences(now)[0].Text)
	assert.False(t, far.KeepsOff(n.Status.Node.GPUs[0].Name))
}
