package nvstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

func TestReset(t *testing.T) {
	before := time.Now().Add(-time.Hour)
	g := GPU{MIGMode: true, Started: before, Instances: []GPUInstance{{ID: 7}}}
	g.Reset()
	assert.False(t, g.MIGMode)
	assert.Empty(t, g.Instances)
	assert.True(t, g.Started.After(before))
	g.PendingMIGMode = true
	g.Reset()
	assert.True(t, g.MIGMode)
}

func TestResetFaultsAreChecked(t *testing.T) {
	for want, f := range map[string]ResetFault{
		"does nothing": {GPU: "*", Times: 1},
		"times:":       {GPU: "*", Refused: true, Times: -1},
		"delay:":       {GPU: "*", Delay: metav1.Duration{Duration: -1}},
	} {
		assert.ErrorContains(t, f.Check(), want)
	}
	for _, f := range []ResetFault{{Refused: true}, {Hang: true, Times: 2}, {Delay: metav1.Duration{Duration: 1}}} {
		assert.NoError(t, f.Check())
	}
}

func TestNextReset(t *testing.T) {
	const one, two = "0000:1b:00.0", "0000:43:00.0"
	st := &State{}
	faults := []ResetFault{
		{GPU: one, Refused: true, Times: 2},
		{GPU: "*", Hang: true, Times: 1},
		{GPU: two, Refused: true},
	}
	file := disk.FileID{Inode: 1}
	next := func(pci string) ResetFault { return st.NextReset(faults, pci, file) }
	assert.Equal(t, faults[0], next(one))
	assert.Equal(t, faults[0], next(one))
	assert.Equal(t, faults[1], next(two))
	assert.Equal(t, ResetFault{}, next(one), "all used up")
	for range 3 {
		assert.Equal(t, faults[2], next(two), "for ever")
	}
	file.Inode++
	assert.Equal(t, faults[0], next(one), "another file restarts the count")
}

func TestFireFault(t *testing.T) {
	st := &State{}
	assert.True(t, st.FireFault("calls", 0, 1, disk.FileID{}))
	assert.True(t, st.FireFault("resets", 0, 1, disk.FileID{}), "another key")
	assert.True(t, st.FireFault("calls", 1, 1, disk.FileID{}), "another entry")
	assert.False(t, st.FireFault("calls", 0, 1, disk.FileID{}))
}

func TestCopiesShareNothing(t *testing.T) {
	root := t.TempDir()
	store := Store(root)
	require.NoError(t, store.Update(func(*State) (*State, error) {
		return &State{
			Version: Version, GPUs: []GPU{{PCI: "a", Instances: []GPUInstance{{ID: 1, Compute: []ComputeInstance{{ID: 2}}}}}},
			Processes: []Process{{PID: 1}}, FiredFaults: map[string]int{"calls/0": 1},
		}, nil
	}))
	before, err := store.Read()
	require.NoError(t, err)
	failed := assert.AnError
	require.ErrorIs(t, store.Update(func(st *State) (*State, error) {
		g, _ := st.GPU("a")
		i, _ := g.Instance(1)
		c, _ := i.ComputeInstance(2)
		g.PendingMIGMode, i.Start, c.Start, st.Processes[0].PID, st.FiredFaults["calls/0"] = true, 9, 9, 9, 9
		return st, failed
	}), failed)
	assert.False(t, before.GPUs[0].PendingMIGMode)
	assert.Zero(t, before.GPUs[0].Instances[0].Start)
	assert.Zero(t, before.GPUs[0].Instances[0].Compute[0].Start)
	assert.Equal(t, 1, before.Processes[0].PID)
	assert.Equal(t, 1, before.FiredFaults["calls/0"])
	_, ok := before.GPU("b")
	assert.False(t, ok)
	assert.ErrorContains(t, ErrNone(root), root)
}
