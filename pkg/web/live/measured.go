package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// What a plugin can make this program keep: maxGPUs of a node, with names up to maxNameLength.
const maxGPUs, maxNameLength = 32, 253

// measured are those of a GPU. Points are only added, and cut off at the beginning: pages draw what
// they got meanwhile.
type measured struct {
	// at is when the plugin last told of the GPU.
	at                  time.Time
	busy, memory, power []overview.Point
	busyTitle, short    string
	memoryTotal         float64
	byClaim             map[string]string
}

// keep adds what a plugin told. GPUs that it has not told of for long are forgotten.
func (n *node) keep(gpus []usage.GPU, now time.Time) {
	for i := range gpus {
		g := &gpus[i]
		s := n.gpus[g.Name]
		if s == nil {
			if len(n.gpus) >= maxGPUs || len(g.Name) > maxNameLength {
				continue
			}
			s = &measured{}
			n.gpus[g.Name] = s
		}
		s.add(g, now)
	}
	for name, s := range n.gpus {
		switch {
		case now.Sub(s.at) > kept:
			delete(n.gpus, name)
		case s.at != now:
			s.short, s.byClaim = "", nil
		}
	}
}

func (s *measured) add(g *usage.GPU, now time.Time) {
	s.at = now
	busy, title := busyness(g.Values)
	s.busy = add(s.busy, now, busy)
	if busy != nil {
		s.busyTitle = text.Capital(title)
	}
	s.memory = add(s.memory, now, g.MemoryUsed)
	s.power = add(s.power, now, g.Power)
	if g.MemoryTotal != nil {
		s.memoryTotal = *g.MemoryTotal
	}
	s.short, s.byClaim = words(g.Values), map[string]string{}
	s.claims(g.Users, g.Values)
	for _, p := range g.Partitions {
		s.claims(p.Users, p.Values)
	}
}

// claims notes what the users of a device use. One alone uses all that is used.
func (s *measured) claims(users []usage.User, of usage.Values) {
	for _, u := range users {
		said := words(u.Values)
		if said == "" && len(users) == 1 {
			said = words(of)
		}
		if said == "" || u.Claim == "" {
			continue
		}
		key := u.Device + "/" + u.Namespace + "/" + u.Claim
		if before := s.byClaim[key]; before != "" {
			said = before + "; " + said
		}
		s.byClaim[key] = said
	}
}

// use returns what a page shows. current: the last sample is of now.
func (s *measured) use(current bool) overview.Usage {
	u := overview.Usage{Series: []overview.Series{
		{Title: s.busyTitle, Points: s.busy, Max: 1, Text: percent},
		{Title: "Memory used", Points: s.memory, Max: s.memoryTotal, Text: size},
		{Title: "Power", Points: s.power, Text: watts},
	}}
	if current {
		u.Short, u.ByClaim = s.short, s.byClaim
	}
	return u
}

// add adds a point if the value is known, and cuts off those that are too old.
func add(points []overview.Point, now time.Time, value *float64) []overview.Point {
	if value != nil {
		points = append(points, overview.Point{At: now, Value: *value})
	}
	for len(points) > 0 && now.Sub(points[0].At) > kept {
		points = points[1:]
	}
	return points
}

// busyness returns the part of the compute units that worked or, if that is not known, of the time in
// which anything ran.
func busyness(v usage.Values) (value *float64, title string) {
	if v.Compute != nil {
		return v.Compute, "compute"
	}
	return v.Engine, "engine"
}

// words says values in a few words: "compute 62 %, 49.0 GiB".
func words(v usage.Values) string {
	var out []string
	if busy, title := busyness(v); busy != nil {
		out = append(out, title+" "+percent(*busy))
	}
	if v.MemoryUsed != nil {
		out = append(out, size(*v.MemoryUsed))
	}
	return strings.Join(out, ", ")
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", v*100) }

func watts(v float64) string { return fmt.Sprintf("%.0f W", v) }

func size(v float64) string { return text.Bytes(int64(v)) }
