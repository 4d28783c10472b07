package profile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/byhand"
)

const (
	hopper, other, ampere, plain = byhand.Hopper, byhand.Other, byhand.Ampere, byhand.Plain
	mi300, mi300b, mi210         = byhand.MI300, byhand.MI300b, byhand.MI210
)

var ones, three, wholeOf, xcp, shareOf, partitions = byhand.Ones, byhand.Three, byhand.Whole, byhand.XCP, byhand.Share, byhand.Partitions

// gpuOf is a GPU as it comes out of the box, altered by change.
func gpuOf(address string, change ...func(*profile.NodeGPU)) profile.NodeGPU {
	var g profile.NodeGPU
	g.GPU, g.Modes = byhand.GPU(address)
	for _, alter := range change {
		alter(&g)
	}
	return g
}

func keep(g *profile.NodeGPU) { g.Unchanged = true }

func migOn(g *profile.NodeGPU) {
	g.Modes.MIG, g.Modes.PendingMIG = gpu.MIGOn, gpu.MIGOn
	g.GPU = g.WithMIG(gpu.MIGOn)
}

func live(placements ...gpu.Placement) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) { g.Live = partitions(placements...) }
}

func ours(placements ...gpu.Placement) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) { g.Ours = placements }
}

func held(placements ...gpu.Placement) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) {
		for _, p := range placements {
			g.Held = append(g.Held, profile.Holder{Claim: "team/a", Device: p.Name(), Placement: p})
		}
	}
}

func to(s profile.Layout) func(*profile.NodeGPU) { return func(g *profile.NodeGPU) { g.To = s } }

func static(placements ...gpu.Placement) profile.Layout {
	return profile.Layout{Partitioning: profile.PartitioningStatic, Static: placements}
}

func before(m gpu.Modes) func(*profile.NodeGPU) { return func(g *profile.NodeGPU) { g.Before = m } }

func pending(m gpu.MIGMode) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) { g.Modes.PendingMIG = m }
}

func compute(mode string) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) { g.Modes.Compute = mode }
}

func memoryMode(mode string) func(*profile.NodeGPU) {
	return func(g *profile.NodeGPU) { g.Modes = byhand.InMemoryMode(g.Modes, mode) }
}

var (
	off   = profile.Layout{Partitioning: profile.PartitioningOff}
	named = profile.Layout{Named: true}
)

func deviceNames(placements ...gpu.Placement) []string {
	return lists.Map(placements, gpu.Placement.Name)
}

// outcome is a plan in short.
type outcome struct {
	// steps are those of all GPUs, in order.
	steps    []string
	inTheWay []string
	keeps    []string
	refused  string
	foreign  []string
}

func outcomeOf(plan profile.Changes) outcome {
	var refused []string
	for _, r := range plan.Refused {
		refused = append(refused, r.Why)
	}
	o := outcome{refused: strings.Join(refused, "; ")}
	for _, c := range plan.GPUs {
		for _, s := range c.Steps {
			o.steps = append(o.steps, s.String())
		}
		for _, h := range c.InTheWay {
			o.inTheWay = append(o.inTheWay, h.Device)
		}
		o.keeps = append(o.keeps, c.Keeps...)
	}
	for _, p := range plan.Foreign {
		o.foreign = append(o.foreign, p.Name())
	}
	return o
}

func TestPlanForNVIDIA(t *testing.T) {
	two := ones(hopper, 5, 6)
	for name, tt := range map[string]struct {
		gpu  profile.NodeGPU
		want outcome
	}{
		"dynamic: claims decide":            {gpuOf(hopper, migOn, live(two[0]), held(two[0])), outcome{}},
		"dynamic: nobody speaks of Ampere":  {gpuOf(ampere, held(wholeOf(ampere))), outcome{}},
		"dynamic: and it may be cut":        {gpuOf(ampere, migOn), outcome{}},
		"dynamic: foreign ones are left":    {gpuOf(hopper, migOn, live(two[0])), outcome{}},
		"dynamic: a GPU without MIG":        {gpuOf(plain, to(named)), outcome{}},
		"dynamic: an allow-list on Hopper":  {gpuOf(hopper, held(wholeOf(hopper)), to(profile.Layout{Profiles: []string{"1g.10gb"}, NoWhole: true})), outcome{}},
		"dynamic: somebody's pending mode":  {gpuOf(ampere, pending(gpu.MIGOn)), outcome{}},
		"dynamic: named, Ampere is cut":     {gpuOf(ampere, migOn, to(named)), outcome{}},
		"static: all there":                 {gpuOf(hopper, migOn, live(two...), ours(two...), held(two[1]), to(static(two...))), outcome{}},
		"static: somebody made it, it fits": {gpuOf(hopper, migOn, live(two...), to(static(two...))), outcome{}},
		"off: off":                          {gpuOf(hopper, held(wholeOf(hopper), shareOf(wholeOf(hopper))), to(off)), outcome{}},
		"unchanged: whatever it lacks":      {gpuOf(hopper, keep, to(static(two...))), outcome{}},
		"off: a GPU without MIG":            {gpuOf(plain, to(off), held(wholeOf(plain))), outcome{}},

		"dynamic: idle static ones go, held ones stay": {
			gpuOf(hopper, migOn, live(two...), ours(two...), held(two[0])),
			outcome{steps: []string{"remove partition " + two[1].Name()}, keeps: deviceNames(two[0])},
		},
		"dynamic: a share of one stays": {
			gpuOf(hopper, migOn, live(two...), ours(two...), held(shareOf(two[0]))),
			outcome{steps: []string{"remove partition " + two[1].Name()}, keeps: deviceNames(shareOf(two[0]))},
		},
		"dynamic: named, Ampere is whole": {
			gpuOf(ampere, held(wholeOf(ampere)), to(named)),
			outcome{steps: []string{"switch MIG on on GPU gpu-0000-03-00-0"}, inTheWay: deviceNames(wholeOf(ampere))},
		},
		"dynamic: an allow-list on Ampere": {
			gpuOf(ampere, to(profile.Layout{Profiles: []string{"1g.10gb"}})),
			outcome{steps: []string{"switch MIG on on GPU gpu-0000-03-00-0"}},
		},
		"dynamic: back to how Ampere was": {
			gpuOf(ampere, migOn, held(ones(ampere, 0)...), live(ones(ampere, 0)...), before(gpu.Modes{MIG: gpu.MIGOff})),
			outcome{
				steps:    []string{"remove partition " + ones(ampere, 0)[0].Name(), "switch MIG off on GPU gpu-0000-03-00-0"},
				inTheWay: deviceNames(ones(ampere, 0)...),
			},
		},
		"dynamic: a mode that is pending for us goes back": {
			gpuOf(ampere, pending(gpu.MIGOn), held(wholeOf(ampere)), before(gpu.Modes{MIG: gpu.MIGOff})),
			outcome{steps: []string{"switch MIG off on GPU gpu-0000-03-00-0"}, keeps: deviceNames(wholeOf(ampere))},
		},
		"dynamic: Hopper is not put back": {gpuOf(hopper, migOn, before(gpu.Modes{MIG: gpu.MIGOff})), outcome{}},

		"off: claims must go": {
			gpuOf(hopper, migOn, live(two...), held(two...), to(off)),
			outcome{
				steps:    []string{"remove partition " + two[0].Name(), "remove partition " + two[1].Name(), "switch MIG off on GPU gpu-0000-01-00-0"},
				inTheWay: deviceNames(two...),
			},
		},
		"off: nobody is there": {
			gpuOf(hopper, migOn, live(two...), ours(two...), to(off)),
			outcome{
				steps: []string{"remove partition " + two[0].Name(), "remove partition " + two[1].Name(), "switch MIG off on GPU gpu-0000-01-00-0"},
			},
		},
		"off: foreign": {
			gpuOf(hopper, migOn, live(two[0]), to(off)),
			outcome{steps: []string{"switch MIG off on GPU gpu-0000-01-00-0"}, foreign: deviceNames(two[0])},
		},

		"static: from nothing": {
			gpuOf(hopper, held(shareOf(wholeOf(hopper))), to(static(two...))),
			outcome{
				steps:    []string{"switch MIG on on GPU gpu-0000-01-00-0", "create partition " + two[0].Name(), "create partition " + two[1].Name()},
				inTheWay: deviceNames(shareOf(wholeOf(hopper))),
			},
		},
		"static: on Ampere": {
			gpuOf(ampere, to(static(ones(ampere, 0)...))),
			outcome{steps: []string{"switch MIG on on GPU gpu-0000-03-00-0", "create partition " + ones(ampere, 0)[0].Name()}},
		},
		"static: what fits stays, other claims go": {
			gpuOf(hopper, migOn, live(two[0], three(hopper, 0)), held(two[0], three(hopper, 0)), to(static(two...))),
			outcome{
				steps:    []string{"remove partition " + three(hopper, 0).Name(), "create partition " + two[1].Name()},
				inTheWay: deviceNames(three(hopper, 0)), keeps: deviceNames(two...),
			},
		},
		"static: half made by a crash": {
			gpuOf(hopper, migOn, func(g *profile.NodeGPU) {
				g.Live = partitions(two...)
				g.Live[1].Complete = false
			}, ours(two...), to(static(two...))),
			outcome{steps: []string{"create partition " + two[1].Name()}, keeps: deviceNames(two...)},
		},
		"static: foreign": {
			gpuOf(hopper, migOn, live(append(two, three(hopper, 0))...), ours(two...), to(static(two...))),
			outcome{foreign: deviceNames(three(hopper, 0))},
		},
		"static: a claim that is being prepared for the whole GPU": {
			gpuOf(hopper, migOn, live(two...), ours(two...), held(wholeOf(hopper)), to(static(two...))),
			outcome{inTheWay: deviceNames(wholeOf(hopper)), keeps: deviceNames(two...)},
		},
		"static: a vGPU": {
			gpuOf(hopper, func(g *profile.NodeGPU) { g.Modes.MIGFixed = true }, to(static(two...))),
			outcome{refused: "GPU gpu-0000-01-00-0 has MIG mode off and would need it on, which is not ours to change: it is a vGPU, whose mode belongs to the hypervisor"},
		},
		"static: a GPU without MIG": {
			gpuOf(plain, to(static(ones(plain, 0)...))),
			outcome{refused: "GPU gpu-0000-04-00-0 does not support MIG, so it cannot have static partitions"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, outcomeOf(profile.NewChanges([]profile.NodeGPU{tt.gpu}))) })
	}
}

func TestPlanForAMD(t *testing.T) {
	cpx := profile.Layout{Compute: "CPX"}
	nps4 := profile.Layout{Compute: "CPX", Memory: "NPS4"}
	for name, tt := range map[string]struct {
		gpus []profile.NodeGPU
		want outcome
	}{
		"nobody asks":         {[]profile.NodeGPU{gpuOf(mi300, compute("DPX"), held(xcp(mi300, "dpx", 0)))}, outcome{}},
		"is so":               {[]profile.NodeGPU{gpuOf(mi300, compute("CPX"), held(xcp(mi300, "cpx", 0)), to(cpx))}, outcome{}},
		"is so, memory too":   {[]profile.NodeGPU{gpuOf(mi300, memoryMode("NPS4"), to(nps4))}, outcome{}},
		"as it was":           {[]profile.NodeGPU{gpuOf(mi300, before(gpu.Modes{Memory: "NPS1"}))}, outcome{}},
		"whole, has no modes": {[]profile.NodeGPU{gpuOf(mi210, to(profile.Layout{Compute: "SPX"}))}, outcome{}},

		"compute mode": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Compute: "DPX"}), held(xcp(mi300, "spx", 0), xcp(mi300, "dpx", 1)))},
			outcome{
				steps:    []string{"put GPU gpu-0000-81-00-0 into compute mode DPX"},
				inTheWay: deviceNames(xcp(mi300, "spx", 0)), keeps: deviceNames(xcp(mi300, "dpx", 0), xcp(mi300, "dpx", 1)),
			},
		},
		"shares are of what they share": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Compute: "DPX"}), held(shareOf(xcp(mi300, "spx", 0)), shareOf(xcp(mi300, "dpx", 1))))},
			outcome{
				steps:    []string{"put GPU gpu-0000-81-00-0 into compute mode DPX"},
				inTheWay: deviceNames(shareOf(xcp(mi300, "spx", 0))),
				keeps:    deviceNames(xcp(mi300, "dpx", 0), xcp(mi300, "dpx", 1), shareOf(xcp(mi300, "dpx", 1))),
			},
		},
		"memory mode, for all": {
			[]profile.NodeGPU{gpuOf(mi300, to(nps4), held(xcp(mi300, "cpx", 0))), gpuOf(mi300b, held(xcp(mi300b, "spx", 0))), gpuOf(mi210, held(wholeOf(mi210)))},
			outcome{
				steps: []string{
					"put the AMD GPUs into memory mode NPS4", "put GPU gpu-0000-81-00-0 into compute mode CPX",
					"put the AMD GPUs into memory mode NPS4", "put the AMD GPUs into memory mode NPS4",
				},
				inTheWay: deviceNames(xcp(mi300, "cpx", 0), xcp(mi300b, "spx", 0), wholeOf(mi210)),
			},
		},
		"NVIDIA's GPUs have nothing to do with it": {
			[]profile.NodeGPU{gpuOf(hopper, held(wholeOf(hopper))), gpuOf(mi300, to(profile.Layout{Memory: "NPS4"}))},
			outcome{steps: []string{"put the AMD GPUs into memory mode NPS4"}},
		},
		"only one has lost it": {
			[]profile.NodeGPU{gpuOf(mi300, memoryMode("NPS4"), to(nps4)), gpuOf(mi300b, to(nps4))},
			outcome{
				steps: []string{
					"put the AMD GPUs into memory mode NPS4", "put GPU gpu-0000-81-00-0 into compute mode CPX",
					"put the AMD GPUs into memory mode NPS4", "put GPU gpu-0000-82-00-0 into compute mode CPX",
				},
			},
		},
		"back to the memory mode from before": {
			[]profile.NodeGPU{gpuOf(mi300, memoryMode("NPS4"), before(gpu.Modes{Memory: "NPS1"}))},
			outcome{steps: []string{"put the AMD GPUs into memory mode NPS1"}},
		},
		"two memory modes": {
			[]profile.NodeGPU{gpuOf(mi300, to(nps4)), gpuOf(mi300b, to(profile.Layout{Memory: "NPS1"}))},
			outcome{
				steps: []string{
					"put the AMD GPUs into memory mode NPS4", "put GPU gpu-0000-81-00-0 into compute mode CPX",
					"put the AMD GPUs into memory mode NPS4",
				},
				refused: "GPU gpu-0000-82-00-0 is to be in memory mode NPS1 and GPU gpu-0000-81-00-0 in NPS4, but all GPUs of a node share theirs",
			},
		},
		"a memory mode that it has not": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Memory: "NPS8"}))},
			outcome{refused: "GPU gpu-0000-81-00-0 cannot be put into memory mode NPS8, it has NPS1, NPS4"},
		},
		"a GPU that is to stay as it is": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Memory: "NPS4"})), gpuOf(mi300b, keep)},
			outcome{
				steps:   []string{"put the AMD GPUs into memory mode NPS4"},
				refused: "GPU gpu-0000-82-00-0 is to stay unchanged, but memory mode NPS4 is for all GPUs of a node",
			},
		},
		"no memory modes": {
			[]profile.NodeGPU{gpuOf(mi210, to(profile.Layout{Memory: "NPS1"}))},
			outcome{refused: "GPU gpu-0000-83-00-0 knows no memory modes, so it cannot be put into NPS1"},
		},
		"a compute mode that it has not": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Compute: "TPX"}))},
			outcome{refused: "GPU gpu-0000-81-00-0 cannot be put into compute mode TPX: in memory mode NPS1 it has SPX, DPX, QPX, CPX"},
		},
		"modes that do not go together": {
			[]profile.NodeGPU{gpuOf(mi300, to(profile.Layout{Compute: "SPX", Memory: "NPS4"}))},
			outcome{
				steps:   []string{"put the AMD GPUs into memory mode NPS4"},
				refused: "GPU gpu-0000-81-00-0 cannot be put into compute mode SPX: in memory mode NPS4 it has QPX, CPX",
			},
		},
		"no compute modes": {
			[]profile.NodeGPU{gpuOf(mi210, to(cpx))},
			outcome{refused: "GPU gpu-0000-83-00-0 cannot be partitioned, so it cannot be put into compute mode CPX"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, outcomeOf(profile.NewChanges(tt.gpus))) })
	}
}

// A GPU of a vendor that nobody here knows is planned by what it offers. What the GPUs
// of another vendor change together leaves it alone.
func TestPlanForAnotherVendor(t *testing.T) {
	acme := func(change ...func(*profile.NodeGPU)) profile.NodeGPU {
		g := gpuOf(plain, change...)
		g.Vendor = "acme"
		return g
	}
	for name, test := range map[string]struct {
		gpu  profile.NodeGPU
		want string
	}{
		"nothing is asked":           {gpu: acme()},
		"whole GPUs":                 {gpu: acme(to(off))},
		"the whole GPU as one mode":  {gpu: acme(to(profile.Layout{Compute: "SPX"}))},
		"a claim holds it":           {gpu: acme(held(wholeOf(plain)))},
		"partitions that stay":       {gpu: acme(to(static())), want: "does not support MIG"},
		"a compute mode":             {gpu: acme(to(profile.Layout{Compute: "CPX"})), want: "cannot be partitioned"},
		"a memory mode":              {gpu: acme(to(profile.Layout{Memory: "NPS4"})), want: "knows no memory modes"},
		"MIG, as a profile names it": {gpu: acme(to(named))},
	} {
		plan := profile.NewChanges([]profile.NodeGPU{test.gpu})
		assert.Empty(t, plan.GPUs, name)
		if test.want == "" {
			assert.Empty(t, plan.Refused, name)
		} else if assert.Len(t, plan.Refused, 1, name) {
			assert.Contains(t, plan.Refused[0].Why, test.want, name)
		}
	}

	plan := profile.NewChanges([]profile.NodeGPU{acme(held(wholeOf(plain))), gpuOf(mi300, to(profile.Layout{Memory: "NPS4"}))})
	assert.Empty(t, plan.Refused)
	assert.Len(t, plan.GPUs, 1)
	assert.Equal(t, gpu.AMD, plan.GPUs[0].Vendor)
}
