package defrag_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

// seeds is the number of random fleets of a test: SEEDS=1000 go test ./pkg/defrag.
func seeds(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("SEEDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		require.NoError(t, err)
		return n
	}
	return 200
}

// kindsOf are what pods of random fleets ask for, the most frequent several times.
var kindsOf = map[string][]string{
	h100:   {one, one, one, one, two, two, three, seven, whole},
	mi300x: {eighth, eighth, eighth, eighth, quarter, half, whole},
}

const (
	eighth  = "gpu-xcp-cpx.tranche.dev"
	quarter = "gpu-xcp-qpx.tranche.dev"
	half    = "gpu-xcp-dpx.tranche.dev"
)

// randomFleet is a fleet in which pods came and went, and a pod that fits nowhere, empty if all fit. MI300X
// have fewer devices, which takes less time.
func randomFleet(t *testing.T, r *rand.Rand) (f *fleet, kinds []string, waiting string) {
	t.Helper()
	model := []string{mi300x, mi300x, mi300x, h100}[r.IntN(4)]
	kinds = kindsOf[model]
	gpus := make([]int, 2+r.IntN(3))
	for i := range gpus {
		gpus[i] = 1 + r.IntN(3)/2
	}
	f = newFleetOf(t, model, gpus...)
	for range 14 {
		name := f.add(kinds[r.IntN(len(kinds))], 1, func(p *corev1.Pod) {
			if r.IntN(10) == 0 {
				p.OwnerReferences = nil // may not be moved
			}
		})
		if f.anywhere(r, name) == "" {
			f.remove(name)
		}
	}
	gone := 1 + r.IntN(2) // of three
	for _, name := range f.names() {
		if r.IntN(3) < gone {
			f.remove(name)
		}
	}
	for _, class := range slices.Backward(kinds) {
		if class == kinds[0] {
			break
		}
		if r.IntN(3) == 0 {
			continue
		}
		waiting = f.add(class, 1+int64(r.IntN(8)/7))
		if f.anywhere(r, waiting) == "" {
			return f, kinds, waiting
		}
	}
	return f, kinds, ""
}

func (f *fleet) names() (out []string) {
	for _, p := range f.input().Pods {
		out = append(out, p.Name)
	}
	return out
}

// anywhere places a pod on a random node that has room, and returns the node.
func (f *fleet) anywhere(r *rand.Rand, pod string) string {
	f.t.Helper()
	for _, i := range r.Perm(len(f.in.Nodes)) {
		if node := f.in.Nodes[i].Name; f.bind(pod, node) {
			return node
		}
	}
	return ""
}

// TestEveryMovedPodFits: each pod fits elsewhere before it is evicted, wherever the scheduler placed the
// pods before it, and in the end the waiting pod has the devices of the plan.
func TestEveryMovedPodFits(t *testing.T) {
	t.Parallel()
	planned, done, aborted, refused := 0, 0, 0, map[defrag.Reason]int{}
	for seed := range seeds(t) {
		r := rand.New(rand.NewPCG(seed, 17))
		f, _, waiting := randomFleet(t, r)
		if waiting == "" {
			continue
		}
		plan, refusal := f.plan(waiting, defrag.Options{})
		if refusal != nil {
			refused[refusal.Reason]++
			continue
		}
		planned++
		f.reserve(plan)
		wanted := plan.Devices
		for plan != nil && len(plan.Moves) > 0 {
			old := plan.Moves[0].Pod.Name
			again := f.add(f.claims[old].Spec.Devices.Requests[0].Exactly.DeviceClassName, f.claims[old].Spec.Devices.Requests[0].Exactly.Count)
			require.NotEmpty(t, f.anywhere(r, again), "seed %d: %s lost its place by %+v", seed, old, plan)
			for _, d := range f.devices(again) {
				require.NotContains(t, wanted, d, "seed %d", seed)
			}
			f.remove(old)
			if plan, refusal = f.plan(waiting, defrag.Options{}); plan == nil {
				break
			}
			require.Equal(t, wanted, plan.Devices, "seed %d: another plan with the reservation of the first", seed)
		}
		if refusal.Reason != defrag.FitsNow {
			aborted++
			continue
		}
		done++
		require.NotEmpty(t, f.anywhere(r, waiting), "seed %d: %v", seed, refusal)
		require.Equal(t, wanted, f.devices(waiting), "seed %d", seed)
	}
	t.Logf("%d plans, %d done, %d aborted, refused: %v", planned, done, aborted, refused)
	require.Greater(t, done, 10)
	require.Less(t, aborted*10, planned, "hardly ever are pods moved in vain")
}

// TestReservationKeepsRoom: whatever other pods are created that request other devices, the waiting pod gets the
// planned devices. Without the reservation it does not.
func TestReservationKeepsRoom(t *testing.T) {
	t.Parallel()
	lost := map[bool]int{}
	plans := 0
	for seed := range seeds(t) {
		for _, reserve := range []bool{true, false} {
			if reserve == (seed%4 == 0) {
				continue
			}
			r := rand.New(rand.NewPCG(seed, 18))
			f, kinds, waiting := randomFleet(t, r)
			if waiting == "" {
				continue
			}
			plan, _ := f.plan(waiting, defrag.Options{})
			if plan == nil {
				continue
			}
			plans++
			if reserve {
				f.reserve(plan)
			}
			class := f.claims[waiting].Spec.Devices.Requests[0].Exactly.DeviceClassName
			others := slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == class })
			arrive := func() {
				for range 5 {
					f.anywhere(r, f.add(others[r.IntN(len(others))], 1))
				}
			}
			arrive()
			for _, m := range plan.Moves {
				f.remove(m.Pod.Name)
				arrive()
			}
			if !f.bind(waiting, plan.Node) {
				lost[reserve]++
				continue
			}
			if reserve {
				require.Equal(t, plan.Devices, f.devices(waiting), "seed %d", seed)
			}
		}
	}
	require.Greater(t, plans, 20)
	require.Zero(t, lost[true], "lost in spite of the reservation")
	require.NotZero(t, lost[false], "the reservation makes no difference")
}
