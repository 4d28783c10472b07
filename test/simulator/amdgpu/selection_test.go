package amdgpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// TestReselectedTreeIsThatOfTheState: what is changed for a selector is what the
// whole tree would be, and who reads the old tree sees no difference.
func TestReselectedTreeIsThatOfTheState(t *testing.T) {
	k := machine(t, "mi300x8")
	before, err := k.store.Read()
	require.NoError(t, err)
	old := k.view(before, &Faults{}).tree()
	for _, mode := range []xcp.Mode{xcp.CPX, xcp.QPX, xcp.SPX} {
		after := before.clone()
		after.GPUs[2].Selected, after.GPUs[5].Selected = mode, xcp.DPX
		gpus, ok := reselected(before, after)
		require.True(t, ok)
		v := k.view(after, &Faults{})
		assert.Equal(t, v.tree(), v.reselect(old, gpus), "%s", mode)
	}
	assert.Equal(t, k.view(before, &Faults{}).tree(), old)
}

func TestReselectedOnly(t *testing.T) {
	k := machine(t, "mi300x8")
	before, err := k.store.Read()
	require.NoError(t, err)
	for name, change := range map[string]func(*state){
		"the mode of the GPU":   func(st *state) { st.GPUs[2].Now.Compute = xcp.CPX },
		"another GPU":           func(st *state) { st.GPUs[0].Broken = true },
		"the topology":          func(st *state) { st.Generation++ },
		"the processes":         func(st *state) { st.Processes = []Process{{PID: 1}} },
		"the number of GPUs":    func(st *state) { st.GPUs = st.GPUs[:1] },
		"a load of the driver":  func(st *state) { st.load() },
		"a start of the system": func(st *state) { st.BootID = "another" },
	} {
		after := before.clone()
		after.GPUs[0].Selected = xcp.QPX
		gpus, ok := reselected(before, after)
		require.True(t, ok)
		require.Equal(t, []int{0}, gpus)
		change(after)
		_, ok = reselected(before, after)
		assert.False(t, ok, name)
	}
	_, ok := reselected(nil, before)
	assert.False(t, ok, "nothing was read before")
	gpus, ok := reselected(before, before.clone())
	assert.True(t, ok)
	assert.Empty(t, gpus)
}
