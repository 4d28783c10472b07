package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestStarts(t *testing.T) {
	s := &starts{seen: map[string]string{}, states: map[string]v1alpha1.State{}}
	begin := time.Now()
	take := func(node, pool, id string, state v1alpha1.State, after time.Duration) {
		s.take(node, pool, &v1alpha1.GPUNodeStatus{State: state, Switch: &v1alpha1.Switch{ID: id}}, begin.Add(after))
	}
	take("node-a", "pool-00", "1", v1alpha1.Planning, 0)
	take("node-a", "pool-00", "1", v1alpha1.Planning, time.Second) // nothing new
	take("node-b", "pool-01", "1", v1alpha1.Planning, 2*time.Second)
	take("node-a", "pool-00", "1", v1alpha1.Tainted, 3*time.Second)
	take("node-a", "pool-00", "2", v1alpha1.Tainted, 4*time.Second)
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
