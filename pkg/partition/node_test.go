package partition

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func TestNewNodeFollowsNothing(t *testing.T) {
	p, n := startPlace(t, hopper, ampere, mi300)
	assert.Equal(t, v1beta1.ProfileSnapshot{}, n.Applied())
	assert.Equal(t, profile.Layout{}, n.Layout(hopper))
	assert.False(t, n.Static(ones(hopper, 0)[0]))
	assert.Empty(t, n.Plan(t.Context(), wish("")).Changes)
	require.NoError(t, n.Restore(t.Context()))
	assert.NoFileExists(t, p.file)
}

func TestStaticPartitionsAreMadeAndUnmade(t *testing.T) {
	two := ones(hopper, 5, 6)
	p := newPlace(t, hopper, other)
	balanced := p.profile("balanced", map[string]profile.Layout{hopper: static(two...)})
	n := p.start()
	task := n.Plan(t.Context(), balanced)
	assert.Equal(t, v1beta1.TaskPlanned, task.Phase)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, "MIG mode on, partitions 1g.10gb x 2", task.Changes[0].Description)
	assert.NoFileExists(t, p.file, "a plan touches nothing")
	assert.Empty(t, p.hardware.calls)

	p.follow(n, balanced)
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_5 1g.10gb_6", "gpu-0000-02-00-0 off"}, p.hardware.state())
	assert.Equal(t, static(two...), n.Layout(hopper))
	assert.True(t, n.Static(two[0]))
	assert.True(t, n.Static(shareOf(two[0])))
	assert.False(t, n.Static(ones(hopper, 0)[0]))
	why, _ := p.claims.why.Load(hopper)
	assert.Equal(t, "is being changed to profile balanced", why)
	_, touched := p.claims.why.Load(other)
	assert.False(t, touched, "a GPU that does not change is not disturbed")

	whole := p.profile("whole", map[string]profile.Layout{hopper: off, other: off})
	p.follow(n, whole)
	assert.Equal(t, []string{"gpu-0000-01-00-0 off", "gpu-0000-02-00-0 off"}, p.hardware.state())
	assert.False(t, n.Static(two[0]))
}

// Claims that hold what the new profile has, too, keep it.
func TestHoldersOfWhatStaysKeepIt(t *testing.T) {
	two := ones(hopper, 5, 6)
	p := newPlace(t, hopper)
	first := p.profile("first", map[string]profile.Layout{hopper: static(two...)})
	n := p.start()
	p.follow(n, first)
	p.claims.hold("a", two[0])
	p.hardware.calls = nil

	p.follow(n, p.profile("second", map[string]profile.Layout{hopper: static(two[0], three(hopper, 0))}))
	assert.Equal(t, []string{"destroy " + two[1].Name(), "create " + three(hopper, 0).Name()}, p.hardware.calls)

	// Without a profile, claims make what they ask for: this one has made its own.
	p.follow(n, p.profile("dynamic", nil))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_5"}, p.hardware.state())
	assert.False(t, n.Static(two[0]), "its claim's release takes it away")
}

func TestHolderInTheWay(t *testing.T) {
	p := newPlace(t, hopper, other)
	whole := p.profile("whole", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: off})
	p.claims.hold("a", wholeOf(hopper))
	n := p.start()
	assert.Equal(t, v1beta1.Task{
		Phase: v1beta1.TaskFailed, Reason: names.ReasonInUse,
		Message: "GPU gpu-0000-01-00-0 is in use by claim team/a (gpu-0000-01-00-0)",
	}, n.Apply(t.Context(), whole, false))
	assert.Nil(t, n.journal().Applying, "nothing was begun")
	assert.Empty(t, p.hardware.calls)
	p.claims.release("a")
	p.follow(n, whole)
}

// A claim that comes between the look and the lock is seen.
func TestHolderThatComesLate(t *testing.T) {
	p := newPlace(t, hopper)
	cut := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)})
	n := p.start()
	p.claims.onLock = func() { p.claims.onLock = nil; p.claims.hold("late", wholeOf(hopper)) }
	task := n.Apply(t.Context(), cut, false)
	assert.Equal(t, names.ReasonInUse, task.Reason)
	assert.Contains(t, task.Message, "claim team/late")
	assert.Empty(t, p.hardware.calls)
	p.follow(n, p.profile("before", nil))
	p.claims.release("late")
	p.follow(n, cut)
}

func TestAdminsAreNotInTheWay(t *testing.T) {
	p := newPlace(t, hopper)
	p.claims.hold("a", wholeOf(hopper))
	p.claims.records[0].Devices[0].Admin = true
	p.follow(p.start(), p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}))
}

func TestRefused(t *testing.T) {
	p, n := startPlace(t, hopper, plain)
	p.hardware.gpu(hopper).setMIG(gpu.MIGOn)
	p.hardware.gpu(hopper).live = partitions(three(hopper, 0))
	foreign := p.profile("foreign", map[string]profile.Layout{hopper: static(ones(hopper, 6)...)})
	unfit := p.profile("unfit", map[string]profile.Layout{plain: static(ones(plain, 6)...), hopper: static(ones(hopper, 6)...)})
	const command = "partition gpu-0000-01-00-0-mig-3g-40gb-0 (GI 1) is in the way and was not created by Tranche; to remove it, run on the node: remove GI 1"
	for name, tt := range map[string]struct {
		wish            v1beta1.ProfileSnapshot
		unresolved      error
		reason, message string
	}{
		"foreign":       {foreign, nil, names.ReasonForeignPartition, command},
		"does not fit":  {unfit, nil, names.ReasonProfileDoesNotFit, "GPU gpu-0000-04-00-0 does not support MIG, so it cannot have static partitions; " + command},
		"not to be had": {foreign, errScripted, names.ReasonProfileDoesNotFit, "scripted failure"},
	} {
		t.Run(name, func(t *testing.T) {
			p.unresolved = tt.unresolved
			assert.Equal(t, v1beta1.Task{Phase: v1beta1.TaskRefused, Reason: tt.reason, Message: tt.message}, n.Plan(t.Context(), tt.wish))
			assert.Equal(t, v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: tt.reason, Message: tt.message}, n.Apply(t.Context(), tt.wish, false))
			assert.Empty(t, p.hardware.calls)
			assert.NoFileExists(t, p.file)
		})
	}
}

// Of what is there, what claims hold finds its place in the layout first.
func TestLayoutKeepsHolders(t *testing.T) {
	g := gpu.GPU{PCIAddress: hopper, Vendor: gpu.NVIDIA, Placements: newGPU(hopper).Placements, Counters: gpu.Counters{}}
	for i := range 8 {
		g.Counters[fmt.Sprintf("slice-%d", i)] = 1
	}
	for i := range g.Placements {
		p := &g.Placements[i]
		p.Consumes = gpu.Counters{}
		for s := p.Start; s < p.Start+p.Size; s++ {
			p.Consumes[fmt.Sprintf("slice-%d", s)] = 1
		}
	}
	p := newPlace(t, hopper)
	p.hardware.gpu(hopper).GPU = g
	p.hardware.gpu(hopper).setMIG(gpu.MIGOn)
	p.hardware.gpu(hopper).live = partitions(ones(hopper, 0, 3, 6)...)
	n := p.start()
	n.Resolve = profile.Resolve
	for _, start := range []int{0, 3, 6} {
		one := ones(hopper, start)[0]
		p.claims.hold("a", one)
		shapes, err := n.choose(profile.Snapshot("one", []v1beta1.Rule{{
			MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g", Count: new(int32(1))}}},
		}}), func() []profile.NodeGPU {
			seen, err := n.lookAll(t.Context(), p.hardware.snapshot(), p.claims.Held([]string{hopper}))
			require.NoError(t, err)
			return seen
		}())
		require.NoError(t, err)
		assert.Equal(t, deviceNames(one), deviceNames(shapes.Layouts[hopper].Static...))
		p.claims.release("a")
	}
}

// A layout that was chosen once stays where it is, also after the solver has become
// another, or the partitions are gone.
func TestLayoutKeepsItsPlaces(t *testing.T) {
	p := newPlace(t, hopper)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0, 3)...)})
	n := p.start()
	n.Plan(t.Context(), w)
	p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 5, 6)...)})
	p.follow(n, w)
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0 1g.10gb_3"}, p.hardware.state(), "what was planned is applied")

	p.hardware.reboot()
	n = p.start()
	require.NoError(t, n.Restore(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0 1g.10gb_3"}, p.hardware.state())

	// Another GPU in the slot does not have those places.
	p.hardware.gpu(hopper).Placements = append(ones(hopper, 5, 6), wholeOf(hopper))
	p.hardware.gpu(hopper).live = nil
	require.NoError(t, n.Restore(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_5 1g.10gb_6"}, p.hardware.state())
}

func TestMemoryModesAreNotAllowed(t *testing.T) {
	p := newPlace(t, mi300)
	p.memoryModes = false
	w := p.profile("cpx-nps4", map[string]profile.Layout{mi300: {Compute: "CPX", Memory: "NPS4"}})
	task := p.start().Plan(t.Context(), w)
	assert.Equal(t, v1beta1.TaskRefused, task.Phase)
	assert.Equal(t, names.ReasonProfileDoesNotFit, task.Reason)
	assert.Contains(t, task.Message, "put the AMD GPUs into memory mode NPS4: this needs a driver reload, which the chart's value amd.memoryPartitions.enabled=true")
	p.follow(p.start(), p.profile("cpx", map[string]profile.Layout{mi300: {Compute: "CPX"}}))
}

// A claim that is prepared while the GPUs are looked at is not somebody else.
func TestClaimThatComesWhileGPUsAreLookedAt(t *testing.T) {
	p := newPlace(t, hopper)
	c := p.hardware.gpu(hopper)
	c.setMIG(gpu.MIGOn)
	n := p.start()
	p.hardware.onModes = func(string) error {
		p.hardware.onModes = nil
		c.live = partitions(three(hopper, 0))
		p.claims.hold("a", three(hopper, 0))
		return nil
	}
	task := n.Plan(t.Context(), p.profile("whole", map[string]profile.Layout{hopper: off}))
	assert.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Empty(t, task.Changes[0].KeptDevices)
}

// During a rolling update the plugin that goes knows what the one that has come does.
func TestTwoProcesses(t *testing.T) {
	p := newPlace(t, hopper)
	older, newer := p.start(), p.start()
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)})
	p.follow(newer, w)
	assert.True(t, older.Static(ones(hopper, 0)[0]))
	assert.Equal(t, w, older.Applied())
	next := p.profile("whole", map[string]profile.Layout{hopper: off})
	p.follow(older, next)
	assert.False(t, newer.Static(ones(hopper, 0)[0]))

	// What only a newer one can read changes nothing for the older.
	require.NoError(t, os.WriteFile(p.file, []byte(`{"version": 2}`), 0o600))
	assert.Equal(t, next, newer.Applied())
	require.NoError(t, os.Remove(p.file))
	assert.Equal(t, next, older.Applied())
}

// What is planned again may come to something else: claims have come and gone.
func TestPlanAnew(t *testing.T) {
	p, n := startPlace(t, hopper)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)})
	n.Plan(t.Context(), w)
	p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 5)...)})
	n.Plan(t.Context(), w)
	p.follow(n, w)
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_5"}, p.hardware.state())
}

func TestAppliedShapes(t *testing.T) {
	p := newPlace(t, hopper, mi300)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), mi300: {Compute: "CPX"}})
	n := p.start()
	p.follow(n, w)
	applied, layouts := n.AppliedLayouts()
	assert.Equal(t, "cut", applied.ProfileName)
	assert.Equal(t, static(ones(hopper, 0)...), layouts[hopper])
	assert.Equal(t, "CPX", layouts[mi300].Compute)
	assert.Equal(t, partitions(ones(hopper, 0)...)[0].Name(), p.there[hopper][0].Name())
}

func TestBrokenFileIsSetAside(t *testing.T) {
	p := newPlace(t, hopper)
	require.NoError(t, os.WriteFile(p.file, []byte("{"), 0o600))
	n, err := p.open()
	require.ErrorContains(t, err, p.file+", which records the applied profile, cannot be used and was renamed to "+p.file+".broken; the profile is applied again")
	assert.FileExists(t, p.file+".broken")
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}))

	require.NoError(t, os.Remove(p.file+".broken"))
	require.NoError(t, os.Mkdir(p.file+".broken", 0o700)) // in the way
	require.NoError(t, os.WriteFile(p.file, []byte("{"), 0o600))
	_, err = p.open()
	require.ErrorContains(t, err, "which records the applied profile, cannot be used: no valid JSON: unexpected end of JSON input; and it could not be renamed: ")

	require.NoError(t, os.Remove(p.file))
	require.NoError(t, os.Mkdir(p.file, 0o700))
	_, err = p.open()
	require.ErrorContains(t, err, "read the applied profile")
}
