package telemetry

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// kubelet lets the kubelet name containers, and returns the claims that were checked last.
func (n *node) kubelet(found Containers) (checked *[]string) {
	n.Containers = func(context.Context) (Containers, error) { return found, nil }
	checked = &[]string{}
	n.CheckPods = func(_ context.Context, c ledger.ClaimRef) { *checked = append(*checked, c.Name) }
	return checked
}

func TestContainers(t *testing.T) {
	n := newNode()
	found := Containers{{"team", "web", "a"}: {"main"}, {"team", "web", "b"}: {"main", "side"}}
	checked := n.kubelet(found)
	n.hold("a", podsNamed("web"), device(place(0), ""))
	n.hold("b", podsNamed("web"), device(place(1), ""))
	n.use = always(gpu.Usage{Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.MemoryUsed: 1}), measured(1, gpu.Measured{gpu.MemoryUsed: 2})}})
	n.Measure(t.Context())
	lines := n.scrape(t, "tranche_memory_used_bytes{")
	assert.Contains(t, lines[0], `claim="a",container="main"`)
	assert.Contains(t, lines[1], `claim="b",container=""`, "two containers use it")
	assert.Empty(t, *checked)

	// A pod of the same name, as of a StatefulSet, has other containers.
	n.hold("a", []ledger.Pod{{Name: "web", UID: "another"}}, device(place(0), ""))
	n.Containers = func(context.Context) (Containers, error) { return nil, fmt.Errorf("the kubelet is down") }
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `claim="a",container=""`)
	n.kubelet(Containers{{"team", "web", "a"}: {"other"}})
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `claim="a",container="other"`)
}

// The kubelet prepares a claim once. A pod that uses it later is in the ledger only when somebody
// has looked.
func TestAPodThatJoins(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web"), device(place(0), ""))
	found := Containers{{"team", "web", "a"}: {"main"}}
	checked := n.kubelet(found)
	part := gpu.Usage{
		Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.MemoryUsed: 30})},
		Processes:  []gpu.ProcessUsage{{PID: 1, Device: place(0).Name()}, {PID: 2, Device: place(0).Name()}, {PID: unreadable, Device: place(0).Name()}},
	}
	n.use, n.pods = always(part), map[int]types.UID{1: "uid-web"}
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `pod="web"`)
	assert.Empty(t, *checked)

	n.pods = map[int]types.UID{1: "uid-web", 2: "uid-late"}
	found[Use{"team", "late", "a"}] = []string{"main"}
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `claim="a",container="",`)
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `pod="",`, "not all of it is web's")
	assert.Equal(t, []string{"a"}, *checked)

	// The first one ends. What the other uses is never told of it.
	delete(found, Use{"team", "web", "a"})
	n.pods = map[int]types.UID{2: "uid-late"}
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `pod="",`)
	assert.Equal(t, []string{"a", "a"}, *checked)
	n.hold("a", podsNamed("late"), device(place(0), ""))
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `container="main",`)
	assert.Contains(t, n.scrape(t, "tranche_memory_used_bytes{")[0], `pod="late",`)
	assert.Len(t, *checked, 2)
}

// A pod that replaces one of its name is known by its processes only.
func TestAPodThatReplacesOne(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web-0", "web-1"), share(place(-1), "1", 100))
	checked := n.kubelet(Containers{{"team", "web-0", "a"}: {"main"}, {"team", "web-1", "a"}: {"main"}})
	n.pods = map[int]types.UID{1: "uid-web-0", 2: "new-web-1"}
	n.use = always(gpu.Usage{Processes: []gpu.ProcessUsage{process(1, 10, 0.1), process(2, 20, 0.1)}})
	n.Measure(t.Context())
	n.Measure(t.Context())
	assert.Equal(t, "a", (*checked)[0])
}

// Claims that no container uses are checked in turns, a few in each interval.
func TestFewClaimsAreChecked(t *testing.T) {
	n := newNode()
	checked := n.kubelet(nil)
	n.use = always(gpu.Usage{})
	for i := range 7 {
		n.hold(fmt.Sprint(i), podsNamed("web"), device(place(i), ""))
	}
	n.hold("group", nil, device(place(-1), ""))
	group := n.records["uid-group"]
	group.Group = true // its pods are in no record
	n.records["uid-group"] = group
	n.Measure(t.Context())
	require.Len(t, *checked, maxChecks)
	n.Measure(t.Context())
	require.Len(t, *checked, 2*maxChecks)
	assert.Subset(t, *checked, []string{"0", "1", "2", "3", "4", "5", "6"})
	assert.NotContains(t, *checked, "group")
	for i := range 7 {
		n.release(fmt.Sprint(i))
	}
	n.hold("late", podsNamed("web"), device(place(0), ""))
	n.Measure(t.Context())
	assert.Len(t, n.checked, 1, "claims that are gone are forgotten")
}
