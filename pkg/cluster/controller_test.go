package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// TestWordsOfTheController: what is read here is what the controller writes. It is
// not imported otherwise, since it is large.
func TestWordsOfTheController(t *testing.T) {
	g := v1alpha1.GPUReport{Name: "gpu-a", Mode: "SPX NPS1"}
	n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	n.Status.Node = &v1alpha1.NodeReport{Count: 1, GPUs: []v1alpha1.GPUReport{g}, Applied: "old"}
	n.Status.Applied = &v1alpha1.ProfileSnapshot{Profile: "spx", Source: v1alpha1.FromSpec, Hash: "old"}
	pause := false
	choice := state.Choice{
		Desired: &v1alpha1.ProfileSnapshot{Profile: "cpx", Source: v1alpha1.FromSpec, Hash: "new"},
		Policy:  v1alpha1.SwitchPolicy{DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute}, AfterDeadline: v1alpha1.GiveUp, PauseClients: &pause},
	}
	machine := &state.Machine{Deadlines: state.DefaultDeadlines()}
	step := machine.Next(n, &state.Facts{Now: now, Choice: choice})
	n.Status = step.Status
	far := cluster.ProgressOf(n)
	assert.Equal(t, "profile spx → cpx", far.Title())
	assert.Equal(t, v1alpha1.Planning, far.State)
	assert.Contains(t, far.Doings(now), "left: the node's plugin plans which GPUs have to change")

	n.Status.Node.Task = &v1alpha1.Task{Switch: n.Status.Switch.ID, State: v1alpha1.Planning, Phase: v1alpha1.TaskRefused,
		Reason: names.ReasonProfileDoesNotFit, Message: "gpu-a has no mode CPX"}
	n.Status = machine.Next(n, &state.Facts{Now: now, Choice: choice}).Status
	far = cluster.ProgressOf(n)
	assert.Equal(t, "Failed 0s ago (ProfileDoesNotFit): profile cpx could not be applied: gpu-a has no mode CPX. The node is unchanged, with profile spx. "+
		"It is retried when the profile, its policy, the GPUs or the plugin's settings change.", far.Sentences(now)[0].Text)
	assert.Empty(t, far.GPUs)
}
