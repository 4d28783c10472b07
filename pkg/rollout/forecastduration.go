package rollout

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// mostWindows limits how many windows a rollout can take, so that a forecast ends.
const mostWindows = 10000

// Estimate fills in when the last node would be done: each takes as long as the observed
// switches. Nodes with pods that cannot be evicted, and those that the profile does not fit,
// take no time.
func (f *Forecast) Estimate(in ForecastInput) error {
	if f.Observed == 0 {
		return nil
	}
	strategy := &in.Plan.Spec.Strategy
	c := newSchedule(f, in)
	now, windows := in.Now, 0
	for step := 1; step <= f.Steps; step++ {
		waiting := slices.DeleteFunc(slices.Clone(f.Nodes), func(n ForecastNode) bool { return n.Step != step || len(n.Blocked) > 0 || n.Unfit != "" })
		for len(waiting)+len(c.running) > 0 {
			open, changes, err := InWindow(strategy.Windows, now)
			if err != nil {
				return err
			}
			if open {
				waiting = c.start(waiting, now)
			}
			next := c.next()
			if !open && len(waiting) > 0 || len(strategy.Windows) > 0 && open && !changes.IsZero() && next.After(changes) {
				if windows++; windows > mostWindows || changes.IsZero() {
					return nil
				}
				next = Earliest(next, changes)
			}
			now = next
			c.finish(now)
		}
		if step <= len(strategy.Steps) {
			now = now.Add(strategy.Steps[step-1].Soak.Duration)
		}
	}
	f.Ends = &now
	return nil
}

// schedule switches nodes within the limits of a plan.
type schedule struct {
	takes time.Duration
	// limit is how many nodes may be switched at once, limits how many of each zone. zones are
	// the zones of each node.
	limit  int
	limits map[domain]int
	zones  map[string][]domain
	// running are the nodes that are being switched, with the times at which they are done.
	running map[string]time.Time
}

func newSchedule(f *Forecast, in ForecastInput) *schedule {
	strategy := &in.Plan.Spec.Strategy
	c := &schedule{takes: max(f.Switch.Duration, time.Millisecond), limit: f.MaxUnavailable, running: map[string]time.Time{}, limits: map[domain]int{}, zones: map[string][]domain{}}
	for i := range strategy.TopologyLimits {
		c.limitZones(in, &strategy.TopologyLimits[i])
	}
	return c
}

// limitZones adds the zones of a topology limit.
func (c *schedule) limitZones(in ForecastInput, l *v1beta1.TopologyLimit) {
	sizes := map[domain]int{}
	for i := range in.Nodes {
		if n := &in.Nodes[i]; Selects(in.Plan, n) {
			z := domainOf(l, n.Labels)
			c.zones[n.Name] = append(c.zones[n.Name], z)
			sizes[z]++
		}
	}
	for z, size := range sizes {
		c.limits[z] = atOnce(l, size)
	}
}

func (c *schedule) start(waiting []ForecastNode, now time.Time) (rest []ForecastNode) {
	for i, n := range waiting {
		if len(c.running) >= c.limit {
			return append(rest, waiting[i:]...)
		}
		if slices.ContainsFunc(c.zones[n.Name], c.full) {
			rest = append(rest, n)
			continue
		}
		c.running[n.Name] = now.Add(c.takes)
	}
	return rest
}

// full reports whether no more nodes of a zone may be switched.
func (c *schedule) full(z domain) bool {
	n := 0
	for name := range c.running {
		if slices.Contains(c.zones[name], z) {
			n++
		}
	}
	return n >= c.limits[z]
}

// next returns when the next node is done, or zero if none is running.
func (c *schedule) next() (at time.Time) {
	for _, done := range c.running {
		at = Earliest(at, done)
	}
	return at
}

func (c *schedule) finish(now time.Time) {
	for name, done := range c.running {
		if !done.After(now) {
			delete(c.running, name)
		}
	}
}
