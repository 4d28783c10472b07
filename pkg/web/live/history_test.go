package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// plugins count how often each node is read.
type plugins struct {
	mu    sync.Mutex
	reads map[string]int
	// errs are why nodes cannot be read, hung are those that do not answer.
	errs map[string]error
	hung map[string]bool
}

func newPlugins() *plugins {
	return &plugins{reads: map[string]int{}, errs: map[string]error{}, hung: map[string]bool{}}
}

func (p *plugins) read(ctx context.Context, name string) (usage.Node, error) {
	p.mu.Lock()
	p.reads[name]++
	err, hung := p.errs[name], p.hung[name]
	p.mu.Unlock()
	if hung {
		<-ctx.Done()
		return usage.Node{}, ctx.Err()
	}
	half, memory := 0.5, float64(10<<30)
	return usage.Node{Name: name, GPUs: []usage.GPU{{Name: "gpu-0", Values: usage.Values{Compute: &half, MemoryUsed: &memory}, Partitions: []usage.Partition{
		{Profile: "1g.10gb", Values: usage.Values{Engine: &half}, Users: []usage.User{{Device: "gpu-0-mig", Namespace: "team", Pod: "web", Claim: "web-gpu"}}},
	}}}}, err
}

func (p *plugins) of(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads[name]
}

func (p *plugins) fail(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs[name] = err
}

// watch runs a keeper in a bubble of its own.
func watching(t *testing.T, test func(t *testing.T, p *plugins, k *History)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlugins()
		k := NewHistory(p.read)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Run(ctx); close(ended) }()
		test(t, p, k)
		stop()
		<-ended
	})
}

// look has somebody look at a node for a while, as an open page does.
func look(k *History, name string, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		_, _ = k.Node(name)
	}
	synctest.Wait()
}

func TestFirstSample(t *testing.T) {
	watching(t, func(t *testing.T, p *plugins, k *History) {
		updates, end := k.Subscribe("node-1")
		others, endOthers := k.Subscribe("node-2")
		defer endOthers()
		first, err := k.Node("node-1")
		require.ErrorIs(t, err, errReading, "the page does not wait")
		assert.Empty(t, first)
		<-updates
		assert.Empty(t, others, "it is none of theirs")
		now, err := k.Node("node-1")
		require.NoError(t, err)
		u := now["gpu-0"]
		assert.Equal(t, "compute 50 %, 10 GiB", u.Short)
		assert.Equal(t, map[string]string{"gpu-0-mig/team/web-gpu": "engine 50 %"}, u.ByClaim)
		assert.Equal(t, "Compute", u.Series[0].Title)
		assert.Len(t, u.Series[0].Points, 1)
		assert.Equal(t, "10 GiB", u.Series[1].Text(u.Series[1].Points[0].Value))
		assert.Empty(t, u.Series[2].Points, "its power is not known")
		end()
		time.Sleep(time.Minute)
		assert.Empty(t, updates)
		assert.Empty(t, others)
		assert.Zero(t, p.of("node-2"), "nobody looks at it")
	})
}

// An hour is kept, and no more, while pages draw it; nothing when nobody has looked for long.
func TestLastHour(t *testing.T) {
	watching(t, func(t *testing.T, p *plugins, k *History) {
		look(k, "node-1", 30*time.Minute)
		before, err := k.Node("node-1")
		require.NoError(t, err)
		points := before["gpu-0"].Series[0].Points
		assert.InDelta(t, 120, len(points), 2)
		was := append([]overview.Point{}, points...)
		look(k, "node-1", time.Hour)
		assert.Equal(t, was, points, "what a page draws stays as it is")
		now, err := k.Node("node-1")
		require.NoError(t, err)
		points = now["gpu-0"].Series[0].Points
		assert.InDelta(t, 241, len(points), 1)
		assert.LessOrEqual(t, cap(points), 512, "as the package says")
		assert.LessOrEqual(t, time.Since(points[0].At), kept+period)

		time.Sleep(interest + period)
		synctest.Wait()
		reads := p.of("node-1")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, reads, p.of("node-1"), "nobody looks at it any more")
		again, err := k.Node("node-1")
		require.ErrorIs(t, err, errReading)
		assert.NotEmpty(t, again["gpu-0"].Series[0].Points)
		assert.Empty(t, again["gpu-0"].Short, "what was known is not so now")
		time.Sleep(kept + 3*interest)
		synctest.Wait()
		assert.Empty(t, k.nodes)
	})
}

// A plugin that does not answer holds up nobody, is asked once at a time, and leaves a gap.
func TestHungPlugin(t *testing.T) {
	watching(t, func(t *testing.T, p *plugins, k *History) {
		p.hung["node-1"] = true
		for range 60 {
			_, err := k.Node("node-1")
			require.Error(t, err)
			_, _ = k.Node("node-2")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		_, err := k.Node("node-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 4, p.of("node-1"), 1)
		use, err := k.Node("node-2")
		require.NoError(t, err)
		assert.InDelta(t, 4, len(use["gpu-0"].Series[0].Points), 1)
	})
}

// Why nothing is known is said, what was known before stays in the charts, and the rest goes on.
func TestGap(t *testing.T) {
	watching(t, func(t *testing.T, p *plugins, k *History) {
		p.fail("node-1", errors.New("you are not allowed to get pods/proxy"))
		look(k, "node-1", time.Minute)
		use, err := k.Node("node-1")
		require.EqualError(t, err, "you are not allowed to get pods/proxy")
		assert.Empty(t, use)
		p.fail("node-1", nil)
		look(k, "node-1", 2*time.Minute)
		p.fail("node-1", errors.New("it restarts"))
		look(k, "node-1", 10*time.Minute)
		use, err = k.Node("node-1")
		require.EqualError(t, err, "it restarts")
		assert.Empty(t, use["gpu-0"].Short+use["gpu-0"].ByClaim["gpu-0-mig/team/web-gpu"])
		points := len(use["gpu-0"].Series[0].Points)
		assert.InDelta(t, 8, points, 1, "no value is made up")
		p.fail("node-1", nil)
		look(k, "node-1", time.Minute)
		use, err = k.Node("node-1")
		require.NoError(t, err)
		all := use["gpu-0"].Series[0].Points
		assert.Greater(t, all[points].At.Sub(all[points-1].At), 9*time.Minute)
	})
}

func TestMoreNodesThanAreKept(t *testing.T) {
	watching(t, func(t *testing.T, _ *plugins, k *History) {
		for i := range maxNodes {
			_, err := k.Node(fmt.Sprint("node-", i))
			require.ErrorIs(t, err, errReading)
		}
		_, err := k.Node("one-more")
		require.ErrorIs(t, err, errMany)
		time.Sleep(open - time.Second)
		for i := range maxNodes - 1 {
			_, err = k.Node(fmt.Sprint("node-", i+1))
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second)
		_, err = k.Node("one-more")
		require.ErrorIs(t, err, errReading, "the page of node-0 is closed")
		_, err = k.Node("node-0")
		require.ErrorIs(t, err, errMany)
		assert.Len(t, k.nodes, maxNodes)
		time.Sleep(period)
		synctest.Wait()
		_, err = k.Node("one-more")
		require.NoError(t, err)
	})
}

// What a plugin tells is bounded, whatever it tells.
func TestStrangeValues(t *testing.T) {
	n := &node{gpus: map[string]*measured{}}
	half := 0.5
	now := time.Now()
	n.keep([]usage.GPU{{Name: "gpu", Values: usage.Values{Engine: &half}}, {Name: strings.Repeat("x", 1000)}}, now)
	u := n.gpus["gpu"].use(true)
	assert.Equal(t, "engine 50 %", u.Short)
	assert.Equal(t, "Engine", u.Series[0].Title)
	assert.Empty(t, u.Series[1].Points)
	assert.Zero(t, u.Series[1].Max)
	assert.Empty(t, u.Series[2].Points)
	for i := range 1000 {
		n.keep([]usage.GPU{{Name: fmt.Sprint(i)}}, now)
	}
	assert.Len(t, n.gpus, maxGPUs)
	n.keep([]usage.GPU{{Name: "gpu"}}, now.Add(2*kept))
	assert.Len(t, n.gpus, 1, "GPUs that are gone are forgotten")
}

func TestClaims(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	n := &node{gpus: map[string]*measured{}}
	user := func(device, namespace, claim string, v usage.Values) usage.User {
		return usage.User{Device: device, Namespace: namespace, Claim: claim, Pod: "pod", Values: v}
	}
	n.keep([]usage.GPU{{
		Name: "gpu", Values: usage.Values{Compute: at(0.9)},
		Users: []usage.User{user("share", "a", "share", usage.Values{MemoryUsed: at(1 << 20)}), user("share", "b", "share", usage.Values{}), user("share", "b", "", usage.Values{MemoryUsed: at(1)})},
		Partitions: []usage.Partition{
			{Users: []usage.User{user("mig-1", "a", "two", usage.Values{Compute: at(0.1)})}},
			{Users: []usage.User{user("mig-2", "a", "two", usage.Values{Compute: at(0.2)}), user("mig-2", "a", "two", usage.Values{Compute: at(0.3)})}},
			{Values: usage.Values{Compute: at(0.3), MemoryUsed: at(3 << 30)}, Users: []usage.User{user("mig-3", "c", "alone", usage.Values{})}},
		},
	}}, time.Now())
	assert.Equal(t, map[string]string{
		"share/a/share": "1 MiB", "mig-1/a/two": "compute 10 %", "mig-2/a/two": "compute 20 %; compute 30 %", "mig-3/c/alone": "compute 30 %, 3 GiB",
	}, n.gpus["gpu"].use(true).ByClaim)
}
