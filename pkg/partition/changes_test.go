package partition

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// The answer to the controller says of each GPU what changes, and which devices stay.
func TestChanges(t *testing.T) {
	step := func(op profile.Op, mode string) profile.Step { return profile.Step{Op: op, Mode: mode} }
	at := func(op profile.Op, p gpu.Placement) profile.Step { return profile.Step{Op: op, Placement: p} }
	two := ones(hopper, 5, 6)
	for want, steps := range map[string][]profile.Step{
		"devices that the profile does not have are given back": nil,
		"memory mode NPS4, compute mode CPX":                    {step(profile.OpMemory, "NPS4"), step(profile.OpCompute, "CPX")},
		"removal of 3g.40gb x 1, 1g.10gb x 2, MIG mode off": {
			at(profile.OpDestroy, three(hopper, 0)), at(profile.OpDestroy, two[0]), at(profile.OpDestroy, two[1]), step(profile.OpMIG, "off"),
		},
		"MIG mode on, partitions 1g.10gb x 2": {step(profile.OpMIG, "on"), at(profile.OpCreate, two[0]), at(profile.OpCreate, two[1])},
	} {
		changes := changesOf(profile.Changes{GPUs: []profile.GPUChanges{{GPU: gpu.GPU{PCIAddress: hopper}, Steps: steps, Keeps: []string{"a"}}}})
		assert.Equal(t, []v1beta1.GPUChange{{GPU: "gpu-0000-01-00-0", Description: want, KeptDevices: []string{"a"}}}, changes)
	}
}

// What is left after a switch is named, whatever it is.
func TestLeftOver(t *testing.T) {
	assert.Equal(t, "remaining step: switch MIG off on GPU gpu-0000-01-00-0; GPU a cannot; partition gpu-0000-01-00-0-mig-3g-40gb-0 has appeared",
		leftOver(profile.Changes{
			GPUs:    []profile.GPUChanges{{Steps: []profile.Step{{Op: profile.OpMIG, GPU: hopper, Mode: "off"}}}},
			Refused: []profile.RefusedError{{Why: "GPU a cannot"}},
			Foreign: partitions(three(hopper, 0)),
		}))
	_, n := startPlace(t, hopper)
	n.Driver = func(string) (hardware.Driver, error) { return nil, errScripted }
	assert.EqualError(t, n.refusal(profile.Changes{Foreign: partitions(three(hopper, 0))}),
		"partition gpu-0000-01-00-0-mig-3g-40gb-0 (GI 1) is in the way and was not created by Tranche; remove it with the tool that created it")
}

// A GPU in the slot of another one keeps no layout that it cannot have.
func TestCanHave(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		layout  profile.Layout
		want    bool
	}{
		"dynamic, MIG":               {hopper, profile.Layout{Partitioning: profile.PartitioningDynamic}, true},
		"its partitions":             {hopper, static(ones(hopper, 0)...), true},
		"partitions of another":      {hopper, static(ones(other, 0)...), false},
		"no partitions, MIG":         {hopper, static(), true},
		"no partitions, without MIG": {plain, static(), false},
		"the whole GPU":              {plain, profile.Layout{Compute: "SPX"}, true},
		"a mode":                     {plain, profile.Layout{Compute: "CPX"}, false},
		"a memory mode":              {plain, profile.Layout{Memory: "NPS1"}, false},
		"modes, dynamic":             {mi300, profile.Layout{Partitioning: profile.PartitioningDynamic, Compute: "CPX"}, true},
		"modes, static":              {mi300, static(), false},
		"modes, by names of MIG":     {mi300, profile.Layout{Partitioning: profile.PartitioningDynamic, Named: true}, false},
	} {
		assert.Equal(t, test.want, canHave(&newGPU(test.address).GPU, test.layout), name)
	}
}

// Until the controller has finished, or given up, the first switch, nobody knows what will be applied.
func TestUndecided(t *testing.T) {
	p, n := startPlace(t, hopper)
	assert.True(t, n.Undecided())
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}))
	assert.False(t, n.Undecided(), "a profile is applied")
	_, n = startPlace(t, hopper)
	n.SetDecided()
	assert.False(t, n.Undecided())
}
