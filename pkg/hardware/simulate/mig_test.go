package simulate

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMIGLifeCycle(t *testing.T) {
	n := machine(t, "h100x8")
	d := card(t, n, 0)
	migOn(t, d)
	gi := makeGI(t, d, "1g.10gb", 4)
	ci := makeCI(t, gi)

	m, ret := d.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	name, ret := m.GetName()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", name)

	assert.Equal(t, nvml.ERROR_IN_USE, gi.Destroy(), "compute instance first")
	require.Equal(t, nvml.SUCCESS, ci.Destroy())
	require.Equal(t, nvml.SUCCESS, gi.Destroy())
	_, ret = d.GetMigDeviceHandleByIndex(0)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, ret)
	_, ret = gi.GetInfo()
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, "stale handle")
}
