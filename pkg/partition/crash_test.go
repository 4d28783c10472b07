package partition

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

var errKilled = errors.New("killed")

// killer kills the driver at its n-th point: nothing that it does from then on has an
// effect. Points are those of Config.At, and the moment after each change of the
// hardware.
type killer struct {
	mu   sync.Mutex
	left int
	dead bool
}

func (k *killer) point(string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left < 0 {
		k.dead = true
	}
	if k.dead {
		return errKilled
	}
	return nil
}

// alive fails once the driver is dead.
func (k *killer) alive(string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return errKilled
	}
	return nil
}

// killed runs f with a driver that dies at its n-th point, and reports whether it did.
func (p *place) killed(n int, f func(*Node)) bool {
	k := &killer{left: n}
	p.hardware.before, p.hardware.after = k.alive, k.point
	node := p.start()
	node.At = k.point
	f(node)
	p.hardware.before, p.hardware.after = nil, nil
	return k.dead
}

// The driver dies at each point of a switch in turn. The next one finishes it, or goes
// back, and whatever is on the GPUs meanwhile is known to be ours.
func TestCrashDuringApply(t *testing.T) {
	addresses := []string{hopper, other, ampere, mi300, mi300b}
	from := map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...), other: off, mi300: {Compute: "DPX"}}
	target := map[string]profile.Layout{
		hopper: static(ones(hopper, 0, 1)...), other: static(three(other, 0), three(other, 4)),
		ampere: static(ones(ampere, 3)...), mi300: {Compute: "QPX", Memory: "NPS4"},
	}
	died := true
	for n := 0; died; n++ {
		for _, then := range []string{"on", "back", "another"} {
			t.Run(fmt.Sprintf("point %d, then %s", n, then), func(t *testing.T) {
				p := newPlace(t, addresses...)
				p.hardware.gpu(ampere).resets = true
				first, second := p.profile("first", from), p.profile("second", target)
				third := p.profile("third", map[string]profile.Layout{hopper: off, other: static(ones(other, 2)...)})
				p.follow(p.start(), first)
				p.claims.hold("kept", ones(hopper, 0)...)
				before := p.hardware.state()
				died = p.killed(n, func(node *Node) {
					task := node.Apply(t.Context(), second, false)
					if task.Phase == v1beta1.TaskFailed {
						assert.Contains(t, task.Message, "killed")
					}
				})
				node := p.start()
				for _, c := range p.hardware.gpus {
					for _, part := range c.live {
						assert.True(t, node.Static(part.Placement()), "%s is foreign", part.Name())
					}
				}
				switch then {
				case "on":
					p.follow(node, second)
					assert.Equal(t, []string{
						"gpu-0000-01-00-0 on 1g.10gb_0 1g.10gb_1", "gpu-0000-02-00-0 on 3g.40gb_0 3g.40gb_4", "gpu-0000-03-00-0 on 1g.10gb_3",
						"gpu-0000-81-00-0 QPX NPS4", "gpu-0000-82-00-0 CPX NPS4",
					}, p.hardware.state())
				case "back":
					require.Equal(t, v1beta1.Task{Phase: v1beta1.TaskDone}, node.RollBack(t.Context(), first, false))
					p.follows(node, first)
					assert.Equal(t, before, p.hardware.state())
				case "another":
					p.claims.release("kept")
					p.follow(node, third)
					assert.Equal(t, "gpu-0000-01-00-0 off", p.hardware.state()[0])
					assert.Equal(t, "gpu-0000-02-00-0 on 1g.10gb_2", p.hardware.state()[1])
				}
			})
		}
		require.Less(t, n, 100)
	}
}

// The driver dies while it goes back, and while it restores.
func TestCrashDuringRollBackAndRestore(t *testing.T) {
	from := map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...), mi300: {Compute: "DPX"}}
	target := map[string]profile.Layout{hopper: static(ones(hopper, 1)...), mi300: {Compute: "QPX", Memory: "NPS4"}}
	died := true
	for n := 0; died; n++ {
		p := newPlace(t, hopper, mi300)
		first, second := p.profile("first", from), p.profile("second", target)
		p.follow(p.start(), first)
		before := p.hardware.state()
		require.True(t, p.killed(12, func(node *Node) { node.Apply(t.Context(), second, false) }))
		died = p.killed(n, func(node *Node) { node.Apply(t.Context(), first, false) })
		p.follow(p.start(), first)
		require.Equal(t, before, p.hardware.state(), "point %d of the way back", n)

		p.hardware.reboot()
		died = p.killed(n, func(node *Node) { _ = node.Restore(t.Context()) }) || died
		node := p.start()
		require.NoError(t, node.Restore(t.Context()))
		p.follows(node, first)
		require.Equal(t, before, p.hardware.state(), "point %d of the restoration", n)
		require.Less(t, n, 100)
	}
}
