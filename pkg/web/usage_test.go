package web

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/test/scenes"
)

// uses is a Usage in which all GPUs are equal.
type uses struct {
	mu     sync.Mutex
	points []overview.Point
	err    error
	claims map[string]string
	// asked counts how often each node was asked for, followers are told of news.
	asked     map[string]int
	followers map[string]chan struct{}
}

func newUses(points int) *uses {
	u := &uses{claims: map[string]string{}, asked: map[string]int{}, followers: map[string]chan struct{}{}}
	for i := range points {
		u.points = append(u.points, overview.Point{At: now.Add(time.Duration(i-points+1) * 15 * time.Second), Value: 0.5})
	}
	return u
}

func (u *uses) Node(node string) (map[string]overview.Usage, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked[node]++
	if len(u.points) == 0 {
		return nil, u.err
	}
	out := map[string]overview.Usage{}
	for i := range 8 {
		out[scenes.GPUOf(i)] = overview.Usage{
			Short: "compute 50 %", ByClaim: u.claims,
			Series: []overview.Series{{Title: "Compute", Points: u.points, Max: 1, Text: func(v float64) string { return fmt.Sprintf("%.0f %%", v*100) }}, {Title: "Power"}},
		}
	}
	return out, u.err
}

func (u *uses) Subscribe(node string) (<-chan struct{}, func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := make(chan struct{}, 1)
	u.followers[node] = c
	return c, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.followers, node)
	}
}

// A page that is open gets a chart when there is a sample, and other pages are left alone.
func TestLiveUsage(t *testing.T) {
	u := newUses(0)
	u.err = errors.New("the metrics of the node are being read")
	f := newFixture(t, 3, func(o *Options) { o.Usage = u })
	version := f.store.Snapshot().Version
	path := "/nodes/node-0001/" + scenes.GPUOf(1)
	page := f.get(path).Body.String()
	assert.Contains(t, page, "Not known: the metrics of the node are being read.")
	assert.NotContains(t, page, "chart")
	e, end := f.open(t, "path="+path+"&since="+f.mark(version))
	defer end()
	e.next()
	other, endOther := f.open(t, "path=%2F&since="+f.mark(version))
	defer endOther()
	other.next()
	u.mu.Lock()
	assert.Len(t, u.followers, 1, "the map has no news")
	u.points, u.err = newUses(2).points, nil
	u.followers["node-0001"] <- struct{}{}
	u.mu.Unlock()
	update := e.next()
	assert.Contains(t, update, `id="usage"`)
	assert.Contains(t, update, `aria-label="Compute: 50 % now; at most 50 %"`)
	assert.NotContains(t, update, "Not known")
	assert.NotContains(t, update, `id="gpuhead"`, "nothing else has changed")
	assert.Equal(t, version, f.store.Snapshot().Version)
	end()
	assert.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.followers) == 0
	}, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"node-0001"}, keys(u.asked), "nobody looks at other nodes")
}

func keys(m map[string]int) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// Where nothing was measured the curve has a gap, what is older than an hour is not drawn, and what is long
// ago is not called now.
func TestCharts(t *testing.T) {
	word := func(v float64) string { return fmt.Sprint(v) }
	points := func(at map[time.Duration]float64) (out []overview.Point) {
		for ago, value := range at {
			out = append(out, overview.Point{At: now.Add(-ago), Value: value})
		}
		slices.SortFunc(out, func(a, b overview.Point) int { return a.At.Compare(b.At) })
		return out
	}
	gap := map[time.Duration]float64{10 * time.Minute: 0, 9 * time.Minute: 0.5, 7 * time.Minute: 2, 4 * time.Minute: 1, 0: 0.25}
	long := map[time.Duration]float64{61 * time.Minute: 400, time.Hour: 100, 59 * time.Minute: 200, 3 * time.Minute: 50}
	drawn := charts(overview.Usage{Series: []overview.Series{
		{Title: "Compute", Max: 1, Text: word, Points: points(gap)}, {Title: "Power", Text: word, Points: points(long)}, {Title: "Nothing"},
		{Title: "Old", Text: word, Points: points(map[time.Duration]float64{61 * time.Minute: 1})}, {Title: "One", Text: word, Points: points(map[time.Duration]float64{0: 0})},
	}}, now)
	lines := []int{20, 40, 60}
	assert.Equal(t, []chart{{
		Title: "Compute", Now: "0.25", Says: "at most 2", From: "10 min ago", Lines: lines, Curve: "M0.0 79.0L36.0 41.0L108.0 3.0M216.0 3.0M360.0 60.0",
		Area: "M0.0 80L0.0 79.0L36.0 41.0L108.0 3.0L108.0 80ZM216.0 80L216.0 3.0L216.0 80ZM360.0 80L360.0 60.0L360.0 80Z",
	}, {
		Title: "Power", Now: "not known", Says: "at most 200", From: "60 min ago", Lines: lines, Curve: "M0.0 41.0L6.0 3.0M342.0 60.0",
		Area: "M0.0 80L0.0 41.0L6.0 3.0L6.0 80ZM342.0 80L342.0 60.0L342.0 80Z",
	}, {
		Title: "One", Now: "0", Says: "at most 0", From: "0 s ago", Lines: lines, Curve: "M0.0 79.0", Area: "M0.0 80L0.0 79.0L0.0 80Z",
	}}, drawn)

	u := newUses(8)
	u.err = errors.New("the plugin does not answer")
	f := newFixture(t, 1, func(o *Options) { o.Usage = u })
	page := f.get("/nodes/node-0001/" + scenes.GPUOf(1)).Body.String()
	assert.Contains(t, page, "Not known now: the plugin does not answer.")
	assert.Contains(t, page, `class="chart"`, "what was known is shown")
}
