package state

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

const (
	gpuA = "gpu-0000-01-00-0"
	gpuB = "gpu-0000-02-00-0"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// snapshotOf is a profile of a name.
func snapshotOf(name string) *v1beta1.ProfileSnapshot {
	return &v1beta1.ProfileSnapshot{ProfileName: name, Source: v1beta1.FromSpec, Hash: "hash-" + name}
}

func policyOf() v1beta1.SwitchPolicy { return withDefaults(nil, v1beta1.SwitchPolicy{}) }

// inState is a GPUNode on the way from old to new, in a state since noon.
func inState(state v1beta1.State, change ...func(*v1beta1.GPUNode)) *v1beta1.GPUNode {
	m := &evaluation{Machine: &Machine{Deadlines: DefaultDeadlines()}, Facts: &Facts{Now: noon}}
	m.Status.Switch = &v1beta1.Switch{
		ID: "1", From: *snapshotOf("old"), To: *snapshotOf("new"), Policy: policyOf(), Attempt: 1,
		StartTime: metav1.NewMicroTime(noon),
	}
	asked := v1beta1.Planning
	if state != v1beta1.Planning && state != v1beta1.Waiting {
		m.Status.Switch.GPUs, m.Status.Switch.TaintGeneration = []string{gpuA}, 1
		asked = v1beta1.Tainted
	}
	m.enter(state)
	n := &v1beta1.GPUNode{Status: m.Status}
	n.Name, n.Generation = "node-a", 3
	n.Status.Applied, n.Status.Desired = snapshotOf("old"), snapshotOf("new")
	n.Status.Node = &v1beta1.NodeReport{
		AppliedHash: "hash-old", GPUCount: 2, BootID: "boot-1",
		GPUs: []v1beta1.GPUReport{{Name: gpuA}, {Name: gpuB}},
		Task: &v1beta1.Task{
			SwitchID: "1", State: asked, TaintGeneration: m.Status.Switch.TaintGeneration, Phase: v1beta1.TaskPlanned,
			Changes: []v1beta1.GPUChange{{GPU: gpuA, Description: "partitions 1g.10gb x 7", KeptDevices: []string{gpuA + "-keep"}}},
		},
	}
	if m.Status.Switch.TaintGeneration > 0 {
		n.Status.Node.PublishedTaints = &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 1}
	}
	if state == v1beta1.Idle {
		n.Status.Switch = nil
	}
	for _, c := range change {
		c(n)
	}
	if state == v1beta1.Draining && n.Status.Switch != nil {
		m.Status = n.Status
		m.enter(state)
	}
	return n
}

// answers makes the plugin say something.
func answers(state v1beta1.State, phase v1beta1.TaskPhase, more ...string) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) {
		n.Status.Node.Task = &v1beta1.Task{SwitchID: "1", State: state, Phase: phase}
		if state == v1beta1.Planning && phase == v1beta1.TaskPlanned {
			n.Status.Switch.GPUs = nil
		}
		if len(more) > 0 {
			n.Status.Node.Task.Reason, n.Status.Node.Task.Message = more[0], more[1]
		}
	}
}

// plans makes the plugin answer the first order.
func plans(phase v1beta1.TaskPhase, change ...func(*v1beta1.Task)) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) {
		task := n.Status.Node.Task
		task.State, task.TaintGeneration, task.Phase = v1beta1.Tainted, 1, phase
		for _, c := range change {
			c(task)
		}
	}
}

func changes(gpus ...string) func(*v1beta1.Task) {
	return func(t *v1beta1.Task) {
		t.Changes = nil
		for _, gpuID := range gpus {
			t.Changes = append(t.Changes, v1beta1.GPUChange{GPU: gpuID, Description: "partitions"})
		}
	}
}

func shrinks(gpus ...string) func(*v1beta1.Task) {
	return func(t *v1beta1.Task) { t.ShrinkingGPUs = gpus }
}

// toReboot has the GPUs drained for a reboot.
func toReboot(n *v1beta1.GPUNode) {
	n.Status.Switch.RebootRequired, n.Status.Switch.GPUs = true, []string{gpuA, gpuB}
}

func unpublished(n *v1beta1.GPUNode) { n.Status.Node.PublishedTaints = nil }

func basis(b string) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) { n.Status.Node.InputHash = b }
}

func blockedBy(uids ...types.UID) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) {
		for _, uid := range uids {
			n.Status.Switch.Blockers = append(n.Status.Switch.Blockers, v1beta1.Blocker{Kind: v1beta1.BlockerPod, Namespace: "team", Name: string(uid), UID: uid, Message: "a budget"})
		}
		n.Status.Switch.Reason = names.ReasonDrainBlocked
	}
}

// blocks are facts by which pods cannot leave.
func blocks(uids ...types.UID) func(*Facts) {
	return func(f *Facts) {
		f.Looked = true
		for _, uid := range uids {
			f.Blockers = append(f.Blockers, v1beta1.Blocker{Kind: v1beta1.BlockerPod, Namespace: "team", Name: string(uid), UID: uid, Message: "a budget"})
		}
	}
}

func follows(name string) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) { n.Status.Node.AppliedHash = "hash-" + name }
}

// first has no profile before.
func first(n *v1beta1.GPUNode) { n.Status.Applied = nil }

// stillHeld has the device of webPod and another one held on the node.
func stillHeld(n *v1beta1.GPUNode) {
	n.Status.Node.GPUs[0].HeldDevices = []string{webPod().Devices[0], gpuA + "-other"}
}

func soft(n *v1beta1.GPUNode) { n.Status.Switch.GPUs = nil }

func owned(n *v1beta1.GPUNode) {
	n.Status.Node.OtherSystems = []v1beta1.OtherSystem{{Name: "mig-manager", Message: "mig-manager runs here"}}
}

func policy(change func(*v1beta1.SwitchPolicy)) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) { change(&n.Status.Switch.Policy) }
}

// after are facts some time after noon, where new is wanted.
func after(d time.Duration, change ...func(*Facts)) *Facts {
	f := &Facts{Now: noon.Add(d), Choice: Choice{Desired: snapshotOf("new"), Policy: policyOf()}, Tainted: true}
	for _, c := range change {
		c(f)
	}
	return f
}

func wants(name string) func(*Facts) { return func(f *Facts) { f.Choice.Desired = snapshotOf(name) } }

func keeps(reason string) func(*Facts) {
	return func(f *Facts) { f.Choice.Desired, f.Choice.Keep = nil, reason }
}

func admitted(f *Facts) { f.Admitted = true }

func held(f *Facts) { f.Holders = []drain.Holder{webPod()} }

func evicted(f *Facts) { f.Evicted = 1 }

func without(f *Facts) { f.Tainted, f.Trouble = false, "the node cannot be tainted" }

func asPolicy(n *v1beta1.GPUNode) func(*Facts) {
	return func(f *Facts) { f.Choice.Policy = n.Status.Switch.Policy }
}

func webPod() drain.Holder {
	return drain.Holder{
		Claim: types.NamespacedName{Namespace: "team", Name: "web-gpu"}, Devices: []string{gpuA + "-mig-1g-10gb-0"},
		Pod: &drain.Pod{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "u1"},
	}
}

func retryAt(d time.Duration) func(*v1beta1.GPUNode) {
	return func(n *v1beta1.GPUNode) { n.Status.Switch.RetryTime = ptr.To(metav1.NewMicroTime(noon.Add(d))) }
}

func because(n *v1beta1.GPUNode) {
	n.Status.Switch.Reason, n.Status.Switch.Message = names.ReasonInUse, "process 12"
}

func doesNotFit(n *v1beta1.GPUNode) {
	n.Status.Switch.RetryTime = nil
	n.Status.Switch.Reason, n.Status.Switch.InputHash, n.Status.Node.InputHash = names.ReasonProfileDoesNotFit, "basis", "basis"
}
