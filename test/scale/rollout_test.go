package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestStarts(t *testing.T) {
	s := &starts{seen: map[string]string{}}
	begin := time.Now()
	s.take("node-a", "pool-00", &v1alpha1.Switch{ID: "1"}, begin)
	s.take("node-a", "pool-00", &v1alpha1.Switch{ID: "1"}, begin.Add(time.Second)) // the same switch
	s.take("node-b", "pool-01", &v1alpha1.Switch{ID: "1"}, begin.Add(2*time.Second))
	s.take("node-a", "pool-00", &v1alpha1.Switch{ID: "2"}, begin.Add(3*time.Second))
	assert.Len(t, s.since(time.Time{}), 3)
	assert.Equal(t, []start{{"pool-01", begin.Add(2 * time.Second)}, {"pool-00", begin.Add(3 * time.Second)}}, s.since(begin))
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
