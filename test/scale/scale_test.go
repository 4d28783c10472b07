package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

func TestFlagsOutside(t *testing.T) {
	got := flagsOutside(
		[]string{"--profiles-dir=/etc/own,/etc/default,/etc/more", "--max-unavailable=10%", "--metrics-address=:8080", "-v=2"},
		map[string]string{"/etc/own": "/here/own", "/etc/default": "/here/default"},
		map[string]string{"--metrics-address": "0", "--kubeconfig": "/here/kubeconfig"},
	)
	assert.Equal(t, []string{"--profiles-dir=/here/own,/here/default,/etc/more", "--max-unavailable=10%", "-v=2"}, got[:3])
	assert.ElementsMatch(t, []string{"--metrics-address=0", "--kubeconfig=/here/kubeconfig"}, got[3:])
}

func TestEnvironment(t *testing.T) {
	assert.Equal(t, []string{"A=1"}, environment([]corev1.EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}},
	}))
}

func TestFollowing(t *testing.T) {
	node := func(state v1beta1.State, applied *v1beta1.ProfileSnapshot) any {
		return &v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{State: state, Applied: applied}}
	}
	done, states := following([]any{
		node(v1beta1.Idle, nil), node(v1beta1.Idle, &v1beta1.ProfileSnapshot{ProfileName: "cpx"}), node(v1beta1.Idle, &v1beta1.ProfileSnapshot{}),
		node(v1beta1.Applying, &v1beta1.ProfileSnapshot{ProfileName: "cpx"}), "not one",
	}, "cpx")
	assert.Equal(t, 1, done)
	assert.Equal(t, map[v1beta1.State]int{v1beta1.Idle: 3, v1beta1.Applying: 1}, states)
}

// A plugin answers each state of a switch once, and takes its time to change GPUs.
func TestPluginAnswers(t *testing.T) {
	p := &plugins{cluster: &cluster{scale: &scale{gpus: 3}}}
	n := &plugin{name: "a", applied: "old"}
	s := &v1beta1.GPUNodeStatus{Switch: &v1beta1.Switch{
		ID: "1", From: v1beta1.ProfileSnapshot{ProfileName: "whole", Hash: "old"}, To: v1beta1.ProfileSnapshot{ProfileName: "cpx", Hash: "new"},
	}}
	for _, step := range []struct {
		state   v1beta1.State
		asked   bool
		phase   v1beta1.TaskPhase
		changes int
		applied string
	}{
		{v1beta1.Planning, true, v1beta1.TaskPlanned, 3, "old"},
		{v1beta1.Planning, false, "", 0, ""},
		{v1beta1.Waiting, false, "", 0, ""},
		{v1beta1.Tainted, true, v1beta1.TaskPlanned, 3, "old"},
		{v1beta1.Tainted, false, "", 0, ""},
		{v1beta1.Applying, true, v1beta1.TaskDone, 0, "new"},
		{v1beta1.Applying, false, "", 0, ""},
		{v1beta1.RollingBack, true, v1beta1.TaskDone, 0, "old"},
	} {
		s.State, s.Switch.TaintGeneration = step.state, 1
		require.Equal(t, step.asked, s.AwaitsPlugin(n.task), step.state)
		if !step.asked {
			continue
		}
		start := time.Now()
		wait := n.busy(s, start)
		assert.Equal(t, step.phase == v1beta1.TaskDone, wait > 0, step.state)
		assert.LessOrEqual(t, n.busy(s, start.Add(wait)), time.Duration(0), "it is done then")
		n.task, n.applied = p.answer(n, s)
		assert.Equal(t, step.phase, n.task.Phase)
		assert.Len(t, n.task.Changes, step.changes)
		assert.Equal(t, step.applied, n.applied)
	}
	s.State, s.Switch.ID, s.Switch.To.ProfileName = v1beta1.Planning, "2", "whole"
	require.True(t, s.AwaitsPlugin(n.task), "another switch")
	task, _ := p.answer(n, s)
	assert.Empty(t, task.Changes, "the same profile changes no GPU")
}

func TestDevicesAreOthersWithEveryProfile(t *testing.T) {
	n := &plugin{name: "a", applied: "old"}
	before := publish.Digest(sliceOf(n, 1, 8).Spec.Devices)
	assert.Equal(t, before, publish.Digest(devices(n, 1)))
	n.applied = "new"
	assert.NotEqual(t, before, publish.Digest(devices(n, 1)))
}

// The hardware is that of the inventories, and takes no time.
func TestAtOnceValues(t *testing.T) {
	data, err := atOnceValues(filepath.Join("../..", inventories))
	require.NoError(t, err)
	var values struct {
		Simulate struct {
			Nodes       map[string]string
			Inventories map[string]struct {
				Delays map[string]string
				AMD    struct{ Delays map[string]string }
				GPUs   []struct{ Count int }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &values))
	require.Len(t, values.Simulate.Inventories, len(vendors))
	for _, v := range vendors {
		i, ok := values.Simulate.Inventories[values.Simulate.Nodes[v.node]]
		require.True(t, ok, v.node)
		gpus := 0
		for _, g := range i.GPUs {
			gpus += g.Count
		}
		assert.Equal(t, 8, gpus)
		delays := slices.Concat(mapValues(i.Delays), mapValues(i.AMD.Delays))
		assert.NotEmpty(t, delays)
		assert.Equal(t, []string{"0s"}, slices.Compact(delays))
	}
	_, err = atOnceValues(t.TempDir())
	require.ErrorContains(t, err, "root of the repository")
}

func mapValues(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

func TestWorst(t *testing.T) {
	r := worst([]oneSwitch{{profile: "a", took: []float64{1, 1, 9}}, {profile: "b", took: []float64{3}}, {profile: "c", took: []float64{2}}},
		(*oneSwitch).seconds, func(o *oneSwitch) string { return o.profile })
	assert.Equal(t, figures.Reading{Value: 3, Seen: "a, b, c"}, r)
}

// One slow round moves neither the figure nor the times that are shown.
func TestCompared(t *testing.T) {
	r := compared([]float64{0.03, 0.06, 0.03}, []float64{0.05, 0.05, 0.06})
	assert.InDelta(t, 0.6, r.Value, 1e-9)
	assert.Equal(t, "30.0 against 50.0 ms; 3 rounds, 0.50 to 1.20", r.Seen)
}

// Both layouts answer every workload, on a node with the same GPUs.
func TestLayoutsServeTheWorkloads(t *testing.T) {
	inv, err := models.LoadInventory(scheduledInventory)
	require.NoError(t, err)
	gpus, err := nodes.NVIDIAGPUs(t.Context(), inv, "node", t.TempDir())
	require.NoError(t, err)
	classes, err := allocator.Classes("../../" + renderedChart)
	require.NoError(t, err)
	for _, l := range layouts {
		published, err := l.publish("node-000", gpus)
		require.NoError(t, err)
		names := sets.New[string]()
		for _, slice := range published {
			names.Insert(slice.Name)
			assert.Equal(t, l.driver, slice.Spec.Driver)
		}
		assert.Len(t, names, len(published), "each slice is an object of its own")
		scheduler := allocator.New(nodes.ForDriver(classes, l.driver), published)
		for _, w := range workloads {
			grant, err := scheduler.Allocate(t.Context(), "node-000", allocator.Claim("claim", allocator.Request("gpu", w.class, 1)))
			require.NoError(t, err)
			require.NotNil(t, grant, "%s: %s", l.name, w.name)
		}
	}
}

func TestStarts(t *testing.T) {
	s := &starts{seen: map[string]string{}, states: map[string]v1beta1.State{}}
	begin := time.Now()
	take := func(node, pool, id string, state v1beta1.State, after time.Duration) {
		s.take(node, pool, &v1beta1.GPUNodeStatus{State: state, Switch: &v1beta1.Switch{ID: id}}, begin.Add(after))
	}
	take("node-a", "pool-00", "1", v1beta1.Planning, 0)
	take("node-a", "pool-00", "1", v1beta1.Planning, time.Second) // nothing new
	take("node-b", "pool-01", "1", v1beta1.Planning, 2*time.Second)
	take("node-a", "pool-00", "1", v1beta1.Tainted, 3*time.Second)
	take("node-a", "pool-00", "2", v1beta1.Tainted, 4*time.Second)
	assert.Len(t, s.since(time.Time{}), 4)
	assert.Equal(t, []start{
		{"pool-01", begin.Add(2 * time.Second), false}, {"pool-00", begin.Add(3 * time.Second), true}, {"pool-00", begin.Add(4 * time.Second), false},
	}, s.since(begin))
	at, err := s.await(t.Context(), func(s start) bool { return s.pool == "pool-01" })
	require.NoError(t, err)
	assert.Equal(t, begin.Add(2*time.Second), at)
}

// Every pool has the same number of nodes, and the plan selects them.
func TestPools(t *testing.T) {
	nodes := map[string]int{}
	for i := range 500 {
		nodes[poolOf(i, 40)]++
	}
	require.Len(t, nodes, 40)
	for pool, n := range nodes {
		assert.Contains(t, []int{12, 13}, n)
		assert.Equal(t, pool, planOf(pool).Spec.NodeSelector.MatchLabels[poolLabel])
	}
}
