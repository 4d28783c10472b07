package replay

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// queue are the claims that wait, by kind in order of their arrival.
type queue struct {
	of [len(workload.Kinds)][]*fleet.Claim
}

func (q *queue) add(c *fleet.Claim) { q.of[c.Kind] = append(q.of[c.Kind], c) }

// remove takes out the oldest claim of a kind.
func (q *queue) remove(c *fleet.Claim) { q.of[c.Kind] = q.of[c.Kind][1:] }

// kinds has a bit for each kind of which a claim waits.
func (q *queue) kinds() (waiting uint) {
	for k := range q.of {
		if len(q.of[k]) > 0 {
			waiting |= 1 << k
		}
	}
	return waiting
}

// oldest is the first claim that arrived of these kinds.
func (q *queue) oldest(of uint) (c *fleet.Claim) {
	for k := range q.of {
		if of&(1<<k) != 0 && (c == nil || q.of[k][0].Arrival < c.Arrival) {
			c = q.of[k][0]
		}
	}
	return c
}

// demand is the GPU memory that waits, by kind, in GPUs.
func (q *queue) demand() (all Demand) {
	for k := range q.of {
		all[k] = float64(len(q.of[k])) * workload.Kinds[k].GPUs()
	}
	return all
}
