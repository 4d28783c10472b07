package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/short"
)

// chaos is a world in which anything can happen at any time.
type chaos struct {
	*world
	node *fakeNode
	rand *rand.Rand
	pods int
	log  []string
	// failed: the API server has failed in this round.
	failed bool
}

// happening is something that may happen.
type happening struct {
	name string
	do   func()
}

// one of them happens to a node.
func (c *chaos) one(node string, of ...happening) {
	e := of[c.rand.IntN(len(of))]
	c.log = append(c.log, node+": "+e.name)
	e.do()
}

// faults are those of a node, of budgets, the controller, its caches and the API server.
func (c *chaos) faults(name string) []happening {
	node := c.nodes[name]
	now := func(wrong func() error) func() error {
		return func() error {
			if c.rand.IntN(4) == 0 {
				return wrong()
			}
			return nil
		}
	}
	return []happening{
		{"the plugin dies", func() { node.dead = true }},
		{"the plugin is back", func() { node.dead = false }},
		{"another owner", func() { node.owners = []v1beta1.OtherSystem{{Name: "mig-manager"}} }},
		{"no other owner", func() { node.owners = nil }},
		{"a budget", func() { c.blocks(refuse("the budget says no")) }},
		{"no budget", func() { c.blocks(nil) }},
		{"the controller dies", func() { c.startController() }},
		{"the caches are late", func() { c.freeze() }},
		{"the API server fails now and then", func() {
			fails := now(c.anError)
			c.refuse = func(string, client.Object) error { return fails() }
		}},
		{"its answers get lost now and then", func() { c.lose = now(func() error { return errors.New("lost") }) }},
		{"the API server works", func() { c.works() }},
	}
}

func (c *chaos) happens() {
	c.one("node-a", append(c.faults("node-a"), []happening{
		{"another profile", func() { c.wants("node-a", c.pick("old", "cpx", "spx", "missing", "")) }},
		{"the profile is changed", func() {
			c.profile(c.pick("cpx", "spx"), func(p *v1beta1.PartitionProfile) {
				p.Spec.Rules[0].XCP.MemoryPartition = c.pick("NPS1", "NPS2", "NPS4")
				p.Spec.Switch = &v1beta1.SwitchPolicy{
					AfterDeadline: v1beta1.AfterDeadline(c.pick("Force", "GiveUp")), Reboot: v1beta1.Reboot(c.pick("Never", "IfRequired")),
					NodeTaintEffect: v1beta1.NodeTaintEffect(c.pick("None", "NoSchedule")),
				}
			})
		}},
		{"paused or not", func() { c.pause(c.rand.IntN(2) == 0) }},
		{"the plugin has forgotten its task", func() { c.node.task, c.node.working = v1beta1.Task{}, "" }},
		{"the plugin is slow", func() { c.node.slow = time.Duration(c.rand.IntN(90)) * time.Second }},
		{"the plugin answers something else", func() {
			phase := v1beta1.TaskPhase(c.pick("", "", "Refused", "Failed", "RebootRequired"))
			state := v1beta1.State(c.pick("Planning", "Tainted", "Applying", "RollingBack", "Rebooting"))
			c.node.answer = func(_ *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
				if s == state {
					return phase, "not a reason", "it was so"
				}
				return "", "", ""
			}
		}},
		{"it publishes something else", func() { c.node.wrong = c.rand.IntN(2) == 0 }},
		{"a budget that says no only when it counts", func() { c.evict, c.tryEvict = refuse("not now"), nil }},
		{"the second plan is another", func() { c.second() }},
		{"what a plan depends on", func() { c.node.basis = c.pick("", "a", "b") }},
		{"the API server drops taints or not", func() { c.node.dropped = c.rand.IntN(3) == 0 }},
		{"a pod", func() { c.addPod() }},
		{"a person unpauses", func() { c.label("node-a", "nvidia.com/gpu.deploy.dcgm", "true") }},
		{"another controller leads, and the one before has not noticed", func() { c.overlap() }},
		{"the caches are up to date", func() { c.thaw() }},
		{"somebody refuses that nodes are changed", func() { c.refuse = refuseNodes }},
		{"somebody refuses that pods are listed", func() {
			c.failList = func(l client.ObjectList) error {
				if _, ok := l.(*corev1.PodList); ok {
					return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
				}
				return nil
			}
		}},
		{"the GPUNode is deleted", func() {
			if c.rand.IntN(4) == 0 {
				require.NoError(c.t, c.api.Delete(c.t.Context(), c.gpuNode("node-a")))
				c.works()
				c.round("node-a")
				c.clean("node-a")
				g := &v1beta1.GPUNode{}
				g.Name = "node-a"
				require.NoError(c.t, c.api.Create(c.t.Context(), g))
			}
		}},
	}...)...)
}

// works ends all faults of the API server.
func (c *chaos) works() {
	c.refuse, c.lose, c.failList = nil, nil, nil
	c.thaw()
}

// anError is one of those that an API server answers with.
func (c *chaos) anError() error {
	c.failed = true
	switch pods := corev1.Resource("pods"); c.rand.IntN(6) {
	case 0:
		return apierrors.NewConflict(pods, "x", errors.New("somebody else has written"))
	case 1:
		return apierrors.NewInternalError(errors.New("etcd"))
	case 2:
		return apierrors.NewForbidden(pods, "x", errors.New("a policy"))
	case 3:
		return apierrors.NewTooManyRequests("slow down", 1)
	case 4:
		return apierrors.NewServiceUnavailable("starting")
	}
	return errors.New("connection refused")
}

// overlap has two controllers work side by side for a moment.
func (c *chaos) overlap() {
	before := c.r
	c.startController()
	now := c.r
	for range 1 + c.rand.IntN(6) {
		c.r = before
		if c.rand.IntN(2) == 0 {
			c.r = now
		}
		c.round("node-a")
		c.clock.Step(time.Duration(c.rand.IntN(2000)) * time.Millisecond)
	}
	c.r = now
}

func (c *chaos) pick(from ...string) string { return from[c.rand.IntN(len(from))] }

func (c *chaos) pause(yes bool) {
	n := c.gpuNode("node-a")
	n.Spec.Paused = yes
	require.NoError(c.t, c.api.Update(c.t.Context(), n))
}

// second has the plugin change its mind once the taints stand.
func (c *chaos) second() {
	which := c.rand.IntN(4)
	c.node.second = func(sw *v1beta1.Switch) ([]v1beta1.GPUChange, []string) {
		changes := c.node.changes(sw)
		switch which {
		case 0:
			return changes, []string{gpuB}
		case 1:
			return append(changes, v1beta1.GPUChange{GPU: gpuB, Description: "too"}), nil
		case 2:
			return nil, nil
		}
		return append(changes, v1beta1.GPUChange{GPU: "gpu-of-another-node"}), nil
	}
}

// addPod adds a pod as the scheduler would: not on a GPU that is tainted.
func (c *chaos) addPod() {
	gpuID := c.pick(gpuA, gpuB)
	if _, tainted := c.taintedGPUs("node-a")[gpuID]; tainted || c.node.dropped && c.gpuNode("node-a").Status.RequestsTaints() {
		return
	}
	if hasNodeTaint(c.world.node("node-a")) || len(c.node.held(c.world, gpuID)) > 0 {
		return
	}
	// The node would refuse it while it changes the GPU.
	if s := c.gpuNode("node-a").Status.State; s == v1beta1.Applying || s == v1beta1.Rebooting || s == v1beta1.RollingBack {
		return
	}
	c.pods++
	device, admin := gpuID, c.rand.IntN(5) == 0
	if admin {
		device += "-monitor"
	}
	c.pod("node-a", fmt.Sprintf("pod-%d", c.pods), gpuID, device, func(_ *corev1.Pod, r *resourceapi.ResourceClaim) {
		r.Status.Allocation.Devices.Results[0].AdminAccess = &admin
	})
}

// holds checks what must hold at any time.
func (c *chaos) holds() {
	n := c.gpuNode("node-a")
	if !n.Status.RequestsTaints() {
		if !c.node.dead {
			assert.Empty(c.t, c.taintedGPUs("node-a"), "devices are tainted in state %s", n.Status.State)
		}
		assert.False(c.t, leftover(c.world.node("node-a"), nil), "a taint in state %s", n.Status.State)
		// Since has whole seconds.
		ended := n.Status.StateChangeTime == nil || c.clock.Now().After(n.Status.StateChangeTime.Add(rollout.UntaintPatience+time.Second))
		if rests := n.Status.State == v1beta1.Idle || n.Status.State == v1beta1.Failed; ended && c.lastErr == nil && rests {
			assert.False(c.t, c.busy("node-a"), "a place in the budget in state %s", n.Status.State)
		}
	} else {
		assert.True(c.t, c.busy("node-a") || c.lastErr != nil, "no place in the budget in state %s", n.Status.State)
	}
	// Whether a node rests is looked up in the caches.
	if sw := n.Status.Switch; sw != nil && sw.DeadlineTime != nil && c.stale == nil {
		assert.True(c.t, c.clock.Now().Before(sw.DeadlineTime.Add(10*time.Second)), "state %s outlives its deadline: %s", n.Status.State, ready(n).Message)
	}
}

// checkedRound is a round, after which must hold what has to, if the API server did what
// it should. A conflict is no error of the round.
func (c *chaos) checkedRound() {
	c.lastErr, c.failed = nil, false
	c.round("node-a")
	if c.lastErr == nil && !c.failed {
		c.holds()
	}
}

func TestWhateverHappensTheNodeEndsWell(t *testing.T) {
	for seed := range uint64(short.Of(8, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := &chaos{world: w, node: w.addNode("node-a"), rand: rand.New(rand.NewPCG(seed, 6))}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("what happened: %q", c.log)
				}
			})
			w.label("node-a", "nvidia.com/gpu.deploy.dcgm", "true")
			w.profile("old")
			w.profile("cpx")
			w.profile("spx")
			w.settled("node-a", "")
			for range 60 {
				c.happens()
				for range 1 + c.rand.IntN(5) {
					c.checkedRound()
					w.clock.Step(time.Duration(c.rand.IntN(30_000)) * time.Millisecond)
					c.checkedRound()
				}
				if t.Failed() {
					return
				}
			}
			// All is healthy again: the node comes to the profile that is asked for last.
			c.node.dead, c.node.slow, c.node.answer, c.node.wrong, c.node.owners = false, 0, nil, false, nil
			c.blocks(nil)
			c.node.second = nil
			c.works()
			c.pause(false)
			w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
			w.wants("node-a", "cpx")
			n := w.run("node-a", 2*time.Hour, inProfile("cpx"))
			w.stays(n, "cpx")
			assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm"])
		})
	}
}
