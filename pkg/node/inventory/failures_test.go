package inventory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuWithAll has devices of two profiles, the whole GPU, and shares of all.
func gpuWithAll(address string) gpu.GPU {
	g := gpu.GPU{PCIAddress: address, Vendor: gpu.NVIDIA}
	for _, p := range []gpu.Placement{
		{Type: gpu.TypeGPU}, {Type: gpu.TypeMIG, Profile: "1g"}, {Type: gpu.TypeMIG, Profile: "1g", Start: 1}, {Type: gpu.TypeMIG, Profile: "2g"},
		{Type: gpu.TypeXCP, Profile: "cpx"}, {Type: gpu.TypeXCP, Profile: "cpx", Start: 1}, {Type: gpu.TypeXCP, Profile: "dpx"},
	} {
		p.GPU = address
		g.Placements = append(g.Placements, p)
	}
	share := g.Placements[0]
	share.Type, share.Share = gpu.TypeShare, &gpu.Share{Of: gpu.TypeGPU, By: gpu.ByMemory}
	g.Placements = append(g.Placements, share)
	return g
}

// Which devices need what failed, and which success ends that.
func TestFailures(t *testing.T) {
	g, other := gpuWithAll("0000:01:00.0"), gpuWithAll("0000:02:00.0")
	const whole, one, oneB, two, cpx, dpx, share = 0, 1, 2, 3, 4, 6, 7
	name := func(i int) string { return g.Placements[i].Name() }
	type failure struct {
		step Step
		of   int
	}
	for what, tt := range map[string]struct {
		failures []failure
		tainted  []int
		// helps are devices whose success ends it, others' does not.
		helps     []int
		elsewhere bool
	}{
		"a profile":                 {failures: []failure{{StepCreate, one}}, tainted: []int{one, one + 1}, helps: []int{one, oneB}},
		"two profiles":              {failures: []failure{{StepCreate, one}, {StepCreate, two}}, tainted: []int{one, one + 1, two}},
		"the whole GPU":             {failures: []failure{{StepCreate, whole}}, tainted: []int{whole}, helps: []int{whole, share}},
		"MIG mode":                  {failures: []failure{{StepMode, one}}, tainted: []int{one, one + 1, two}, helps: []int{one, oneB, two}},
		"no MIG mode":               {failures: []failure{{StepMode, share}}, tainted: []int{whole}, helps: []int{whole, share}},
		"a compute mode":            {failures: []failure{{StepMode, cpx}}, tainted: []int{cpx, cpx + 1}, helps: []int{cpx, cpx + 1}},
		"two compute modes":         {failures: []failure{{StepCreate, cpx}, {StepMode, dpx}}, tainted: []int{cpx, cpx + 1, dpx}},
		"shares":                    {failures: []failure{{StepShare, share}}, tainted: []int{share}, helps: []int{share}},
		"the node":                  {failures: []failure{{StepClaim, one}}, tainted: []int{whole, one, one + 1, two, cpx, cpx + 1, dpx}, helps: []int{whole, one, oneB, two, cpx, cpx + 1, dpx, share}, elsewhere: true},
		"what failed before, again": {failures: []failure{{StepCreate, one}, {StepCreate, one}}, tainted: []int{one, one + 1}, helps: []int{one, oneB}},
	} {
		t.Run(what, func(t *testing.T) {
			fail := func() *Failures {
				f := &Failures{FirstRetry: time.Second}
				for _, failed := range tt.failures {
					f.Failed(failed.step, g.Placements[failed.of], "scripted", time.Now())
				}
				return f
			}
			var want, got []string
			for _, i := range tt.tainted {
				want = append(want, name(i))
			}
			for _, o := range fail().On(&g) {
				assert.Equal(t, "scripted", o.Reason)
				got = append(got, o.Placement)
			}
			assert.Equal(t, want, got)
			assert.Equal(t, tt.elsewhere, len(fail().On(&other)) > 0)
			for i, p := range g.Placements {
				f := fail()
				f.Worked(p)
				if len(tt.failures) == 1 {
					assert.Equal(t, slices.Contains(tt.helps, i), len(f.On(&g)) == 0, "%s worked", p.Name())
				}
			}
		})
	}
}

// Failures are tried again with growing pauses; the reason is that of the first.
func TestFailuresAreRetried(t *testing.T) {
	g := gpuWithAll("0000:01:00.0")
	p := g.Placements[1]
	f := &Failures{FirstRetry: time.Minute}
	now := time.Now()
	pauses := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, lastRetry, lastRetry}
	for i, pause := range pauses {
		f.Failed(StepCreate, p, fmt.Sprint("attempt ", i), now)
		assert.Empty(t, f.Due(now.Add(pause-time.Second)))
		assert.Len(t, f.Due(now.Add(pause)), 1)
	}
	due := f.Due(now.Add(lastRetry))[0]
	assert.Equal(t, "attempt 0", due.Reason)
	f.Postpone(due, now.Add(lastRetry))
	assert.Empty(t, f.Due(now.Add(2*lastRetry-time.Second)))
	assert.Len(t, f.Due(now.Add(2*lastRetry)), 1)
	f.Forget(due)
	assert.Empty(t, f.On(&g))
}
