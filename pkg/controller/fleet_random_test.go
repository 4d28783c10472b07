package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/short"
)

// Controllers that die, answers that get lost, nodes that never get on: no more nodes are
// switched at once than may be, and in the end none is kept from its profile by another.
func TestTheBudgetHoldsWhateverHappens(t *testing.T) {
	for seed := range uint64(short.Of(2, 20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			const most = 2
			w := newWorld(t, func(w *world) { w.opts.MaxUnavailable = fmt.Sprint(most) })
			c := &chaos{world: w, rand: rand.New(rand.NewPCG(seed, 7))}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("what happened: %q", c.log)
				}
			})
			for _, profile := range []string{"cpx", "spx"} {
				w.profile(profile)
			}
			var names []string
			for i := range 5 {
				names = append(names, fmt.Sprintf("node-%d", i))
				w.addNode(names[i])
				w.settled(names[i], "")
			}
			for range 150 {
				c.happensTo(names[c.rand.IntN(len(names))])
				for range 1 + c.rand.IntN(8) {
					w.round(names[c.rand.IntN(len(names))])
					require.LessOrEqual(t, w.budgetSeen, most, "the budget is exceeded")
					w.clock.Step(time.Duration(c.rand.IntN(5_000)) * time.Millisecond)
				}
			}
			c.blocks(nil)
			c.works()
			for _, name := range names {
				c.nodes[name].dead, c.nodes[name].owners = false, nil
				w.wants(name, "cpx")
			}
			for end := w.clock.Now().Add(3 * time.Hour); w.clock.Now().Before(end); w.clock.Step(5 * time.Second) {
				done := 0
				for _, name := range names {
					w.round(name)
					if inProfile("cpx")(w.gpuNode(name)) {
						done++
					}
				}
				if done == len(names) {
					break
				}
			}
			for _, name := range names {
				w.round(name) // its plugin has removed the taints
				w.stays(w.gpuNode(name), "cpx")
			}
			assert.Equal(t, most, w.budgetSeen, "the budget was not used")
			assert.Zero(t, w.moving())
		})
	}
}

// happensTo is something that happens in a fleet, most of it to one of its nodes.
func (c *chaos) happensTo(name string) {
	// Most of the time there is something to count: no fault lasts, and nodes are busy.
	if c.rand.IntN(3) == 0 {
		c.works()
	}
	if c.rand.IntN(2) == 0 {
		c.addPodOn(name)
		c.wants(name, c.pick("cpx", "spx"))
	}
	c.one(name, append(c.faults(name), []happening{
		{"another profile", func() { c.wants(name, c.pick("cpx", "spx", "")) }},
		{"all want the same", func() {
			profile := c.pick("cpx", "spx")
			for _, node := range slices.Sorted(maps.Keys(c.nodes)) {
				c.wants(node, profile)
			}
		}},
		{"a pod", func() { c.addPodOn(name) }},
		{"a pod on each node", func() {
			for _, node := range slices.Sorted(maps.Keys(c.nodes)) {
				c.addPodOn(node)
			}
		}},
		{"another budget", func() { c.evict = refuse("the other budget says no") }},
		{"a status is refused", func() {
			c.refuse = func(verb string, o client.Object) error {
				if g, ok := o.(*v1beta1.GPUNode); ok && verb == "status" && g.Name == name {
					return c.anError()
				}
				return nil
			}
		}},
	}...)...)
}

// addPodOn has a pod on the GPU that changes, so that its node is drained for a while if
// a budget says no. The scheduler and the node would refuse it in the middle of a switch.
func (c *chaos) addPodOn(node string) {
	gpuID := c.nodes[node].gpus[0]
	if c.gpuNode(node).Status.RequestsTaints() || len(c.nodes[node].held(c.world, gpuID)) > 0 {
		return
	}
	c.pods++
	c.pod(node, fmt.Sprintf("pod-%d", c.pods), gpuID, gpuID)
}
