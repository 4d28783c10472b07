package partition

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func TestRestoreAfterReboot(t *testing.T) {
	two := ones(hopper, 5, 6)
	layouts := map[string]profile.Layout{hopper: static(two...), ampere: named, mi300: {Compute: "QPX", Memory: "NPS4"}, mi300b: {Compute: "CPX"}}
	applied := []string{"gpu-0000-01-00-0 on 1g.10gb_5 1g.10gb_6", "gpu-0000-03-00-0 on", "gpu-0000-81-00-0 QPX NPS4", "gpu-0000-82-00-0 CPX NPS4"}
	lost := []string{"gpu-0000-01-00-0 off", "gpu-0000-03-00-0 on", "gpu-0000-81-00-0 SPX NPS1", "gpu-0000-82-00-0 SPX NPS1"}
	const noMemory = "put the AMD GPUs into memory mode NPS4: this needs a driver reload, which the chart's value amd.memoryPartitions.enabled=true allows"
	for name, tt := range map[string]struct {
		forbidden bool
		hold      []gpu.Placement
		err       string
		want      []string
	}{
		"all":                 {want: applied},
		"no memory modes":     {forbidden: true, err: noMemory, want: []string{applied[0], applied[1], "gpu-0000-81-00-0 QPX NPS1", "gpu-0000-82-00-0 CPX NPS1"}},
		"a partition is held": {hold: two[:1], want: applied, err: "GPU gpu-0000-01-00-0 is in use by claim team/a (" + two[0].Name() + ")"},
		"a whole GPU is held": {hold: []gpu.Placement{wholeOf(hopper)}, err: "GPU gpu-0000-01-00-0 is in use by claim team/a (gpu-0000-01-00-0)", want: append([]string{lost[0]}, applied[1:]...)},
		"an AMD GPU is held": {
			hold: []gpu.Placement{xcp(mi300b, "spx", 0)},
			err: "put the AMD GPUs into memory mode NPS4: GPU gpu-0000-82-00-0 is in use by claim team/a (gpu-0000-82-00-0); " +
				"GPU gpu-0000-82-00-0 is in use by claim team/a (gpu-0000-82-00-0)",
			want: []string{applied[0], applied[1], "gpu-0000-81-00-0 QPX NPS1", lost[3]},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, hopper, ampere, mi300, mi300b)
			p.hardware.gpu(ampere).resets = true
			w := p.profile("all", layouts)
			p.follow(p.start(), w)
			require.Equal(t, applied, p.hardware.state())
			p.hardware.reboot()
			require.Equal(t, lost, p.hardware.state())
			if tt.hold != nil {
				p.claims.hold("a", tt.hold...)
			}
			p.memoryModes = !tt.forbidden
			n := p.start()
			err := n.Restore(t.Context())
			if name == "a partition is held" {
				// MIG mode is off, so it cannot really be there: what the ledger says of
				// this boot is believed all the same.
				require.ErrorContains(t, err, tt.err)
				p.claims.release("a")
				err = n.Restore(t.Context())
				tt.err = ""
			}
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tt.err)
			}
			assert.Equal(t, tt.want, p.hardware.state())
			assert.Equal(t, w, n.Applied())
			assert.Equal(t, layouts[mi300], n.Layout(mi300))

			p.claims.release("a")
			p.memoryModes = true
			n = p.start()
			require.NoError(t, n.Restore(t.Context()))
			p.follows(n, w)
			p.hardware.calls = nil
			require.NoError(t, n.Restore(t.Context()))
			assert.Empty(t, p.hardware.calls, "nothing is left to do")
		})
	}
}

// A GPU that comes later, or that answers again, follows the profile as well.
func TestRestoreOfAGPUThatHasCome(t *testing.T) {
	p := newPlace(t, hopper)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 6)...)})
	n := p.start()
	p.follow(n, w)
	p.hardware.gpus = append(p.hardware.gpus, newGPU(other))
	require.NoError(t, n.Restore(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0", "gpu-0000-02-00-0 on 1g.10gb_6"}, p.hardware.state())
	assert.True(t, n.Static(ones(other, 6)[0]))
	assert.Equal(t, p.profiles["cut"][other], p.start().Layout(other))
}

// One that was away while the node came to follow another profile is brought there,
// with what it had.
func TestRestoreOfAGPUThatWasAway(t *testing.T) {
	p, n := startPlace(t, hopper, other)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 6)...)}))
	all := p.hardware.gpus
	p.hardware.gpus = all[:1]
	p.follow(n, p.profile("whole", map[string]profile.Layout{hopper: off, other: off}))
	assert.True(t, n.Static(ones(other, 6)[0]), "it is still ours")
	p.hardware.gpus = all
	require.NoError(t, n.Restore(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 off", "gpu-0000-02-00-0 off"}, p.hardware.state())
	assert.False(t, n.Static(ones(other, 6)[0]))
}

func TestRestoreTellsWhatItCannot(t *testing.T) {
	p := newPlace(t, hopper, other)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 6)...)})
	n := p.start()
	p.follow(n, w)
	p.hardware.reboot()
	p.hardware.onModes = failing(hopper)
	require.ErrorIs(t, n.Restore(t.Context()), errScripted)
	assert.Equal(t, []string{"gpu-0000-01-00-0 off", "gpu-0000-02-00-0 on 1g.10gb_6"}, p.hardware.state(), "the other one is put back")
	p.hardware.onModes = nil
	p.hardware.gpu(hopper).setMIG(gpu.MIGOn)
	p.hardware.gpu(hopper).live = partitions(three(hopper, 4))
	require.ErrorContains(t, n.Restore(t.Context()), "was not created by Tranche")
	p.hardware.gpu(hopper).live = nil
	require.NoError(t, n.Restore(t.Context()))
	p.follows(n, w)
}
