package web

import (
	"errors"
	"fmt"
	"strings"
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
	u.mu.Lock()
	defer u.mu.Unlock()
	assert.Equal(t, []string{"node-0001"}, keys(u.asked), "nobody looks at other nodes")
}

func keys(m map[string]int) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// Where nothing was measured the curve has a gap, and what is long ago is not called now.
func TestChartsHaveGaps(t *testing.T) {
	u := newUses(8)
	for i := range 4 {
		u.points[i].At = u.points[i].At.Add(-10 * time.Minute)
	}
	all, err := u.Node("node")
	assert.NoError(t, err)
	drawn := charts(all[scenes.GPUOf(0)], now)
	assert.Len(t, drawn, 1, "no power is known")
	assert.Equal(t, 2, strings.Count(drawn[0].Curve, "M"))
	assert.Equal(t, 2, strings.Count(drawn[0].Area, "Z"))
	assert.Equal(t, "50 %", drawn[0].Now)
	later := charts(all[scenes.GPUOf(0)], now.Add(broken+time.Second))
	assert.Equal(t, "not known", later[0].Now)

	u.err = errors.New("the plugin does not answer")
	f := newFixture(t, 1, func(o *Options) { o.Usage = u })
	page := f.get("/nodes/node-0001/" + scenes.GPUOf(1)).Body.String()
	assert.Contains(t, page, "Not known now: the plugin does not answer.")
	assert.Contains(t, page, `class="chart"`, "what was known is shown")
}
