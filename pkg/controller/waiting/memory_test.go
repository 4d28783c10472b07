package waiting

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/why"
)

// 200 shapes and 20,000 pods are remembered for 5,000 nodes in little memory, and counted quickly.
func TestManyPodsAndShapes(t *testing.T) {
	const nodes, pods, shapes = 5000, 20_000, 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m, now := newMemory(), time.Unix(1e9, 0)
	m.limits.perNamespace = shapes
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i)
	}
	m.setNodes(names, now)
	for i := range pods {
		key := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("training-job-%d", i)}
		claim := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("training-job-%d-gpu", i)}
		m.see(key, types.UID(key.Name), now)
		m.uses(key, []types.NamespacedName{claim})
		wish := &why.Wish{Key: fmt.Sprint(i % shapes), Certain: true}
		if joined, may := m.join(key, wish.Key); !joined && may {
			m.add(key, wish)
		}
	}
	for _, node := range names {
		for _, s := range m.toJudge(node) {
			m.judged(s, node, verdictOf(why.DevicesHeld, true), 0, now)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc-before.HeapAlloc) >> 20
	began := time.Now()
	byAnswer, _ := m.numbers()
	scrape := time.Since(began)
	t.Logf("%d MB kept; a scrape takes %s", kept, scrape)
	assert.Equal(t, map[why.Answer]int{why.DevicesHeld: pods}, byAnswer)
	assert.Less(t, kept, int64(100))
	if !testing.Short() {
		assert.Less(t, scrape, 100*time.Millisecond)
	}
	runtime.KeepAlive(m)
}
