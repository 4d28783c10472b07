package profile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func from(s profile.Layout) func(*profile.NodeGPU) { return func(g *profile.NodeGPU) { g.Now = s } }

func TestShrinking(t *testing.T) {
	two := ones(hopper, 5, 6)
	onlyLarge := profile.Layout{Named: true, Profiles: []string{"3g.40gb"}}
	cpx, spx := profile.Layout{Compute: "CPX"}, profile.Layout{Compute: "SPX"}
	for name, tt := range map[string]struct {
		gpus    []profile.NodeGPU
		changes []string
		want    []string
	}{
		"MIG off, the other GPU is without it already": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, live(two[0]), held(two[0]), to(off)), gpuOf(other, to(off))},
			[]string{"gpu-0000-01-00-0"}, []string{"gpu-0000-02-00-0"},
		},
		"MIG off, the other GPU has offered nothing else before": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, to(off)), gpuOf(other, from(off), to(off))},
			[]string{"gpu-0000-01-00-0"}, nil,
		},
		"MIG off, and a GPU that knows no MIG": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, to(off)), gpuOf(plain)},
			[]string{"gpu-0000-01-00-0"}, nil,
		},
		"both change": {
			[]profile.NodeGPU{gpuOf(other, migOn, to(off)), gpuOf(hopper, migOn, to(off))},
			[]string{"gpu-0000-01-00-0", "gpu-0000-02-00-0"}, nil,
		},
		"nothing changes, so nobody is displaced": {
			[]profile.NodeGPU{gpuOf(hopper, to(off)), gpuOf(other, to(off))}, nil, nil,
		},
		"static partitions, the other GPU has them already": {
			[]profile.NodeGPU{
				gpuOf(hopper, migOn, to(static(two...))),
				gpuOf(other, migOn, live(ones(other, 5, 6)...), ours(ones(other, 5, 6)...), from(static(ones(other, 5, 6)...)), to(static(ones(other, 5, 6)...))),
			},
			[]string{"gpu-0000-01-00-0"}, nil,
		},
		"static partitions, the other GPU has them and offers more": {
			[]profile.NodeGPU{
				gpuOf(hopper, migOn, to(static(two...))),
				gpuOf(other, migOn, live(ones(other, 5, 6)...), ours(ones(other, 5, 6)...), to(static(ones(other, 5, 6)...))),
			},
			[]string{"gpu-0000-01-00-0"}, []string{"gpu-0000-02-00-0"},
		},
		"fewer profiles on another GPU": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, to(static(two...))), gpuOf(other, from(named), to(onlyLarge))},
			[]string{"gpu-0000-01-00-0"}, []string{"gpu-0000-02-00-0"},
		},
		"more profiles on another GPU": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, to(static(two...))), gpuOf(other, from(onlyLarge), to(named))},
			[]string{"gpu-0000-01-00-0"}, nil,
		},
		"AMD, the other GPU is in the mode already": {
			[]profile.NodeGPU{gpuOf(mi300, to(cpx)), gpuOf(mi300b, compute("CPX"), to(cpx))},
			[]string{"gpu-0000-81-00-0"}, []string{"gpu-0000-82-00-0"},
		},
		"AMD, the other GPU was kept in the mode before": {
			[]profile.NodeGPU{gpuOf(mi300, to(cpx)), gpuOf(mi300b, compute("CPX"), from(cpx), to(cpx))},
			[]string{"gpu-0000-81-00-0"}, nil,
		},
		"AMD, a GPU without modes": {
			[]profile.NodeGPU{gpuOf(mi300, to(cpx)), gpuOf(mi210, to(spx))},
			[]string{"gpu-0000-81-00-0"}, nil,
		},
		"AMD, the memory mode changes all": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Memory: "NPS4"})), gpuOf(mi300b, to(profile.Layout{Memory: "NPS4", Compute: "CPX"}))},
			[]string{"gpu-0000-81-00-0", "gpu-0000-82-00-0"}, nil,
		},
		"in the order of their names": {
			[]profile.NodeGPU{gpuOf(mi300b, compute("CPX"), to(cpx)), gpuOf(other, to(off)), gpuOf(hopper, migOn, to(off))},
			[]string{"gpu-0000-01-00-0"}, []string{"gpu-0000-02-00-0", "gpu-0000-82-00-0"},
		},
		"both vendors": {
			[]profile.NodeGPU{gpuOf(hopper, migOn, to(off)), gpuOf(mi300b, compute("CPX"), to(cpx))},
			[]string{"gpu-0000-01-00-0"}, []string{"gpu-0000-82-00-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := profile.NewChanges(tt.gpus)
			var changes []string
			for _, c := range plan.GPUs {
				changes = append(changes, c.Name())
			}
			assert.Equal(t, tt.changes, changes)
			assert.Equal(t, tt.want, plan.Shrinking)
		})
	}
}

func TestVendors(t *testing.T) {
	assert.Equal(t, []gpu.Vendor{gpu.AMD, gpu.NVIDIA}, profile.Vendors([]profile.NodeGPU{gpuOf(hopper), gpuOf(mi300), gpuOf(other)}))
}
