package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// A GPU in another memory mode has other partitions. What a claim holds stays
// published, fenced with its GPU, until it is released; to ask for it again is
// refused.
func TestMemoryModeChangedBehindOurBackOnNode(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", dpx0)
	k.mustPrepare(c)

	m.amdFaults(amdgpu.Faults{MemoryModes: []amdgpu.MemoryModeFault{{GPU: amdAddress, Mode: "NPS4"}}})
	require.NoError(t, amdgpu.ReloadDriver(m.simulated.Root))
	fenced := func(d resourceapi.Device) bool {
		return (onGPU(d) == amdAddress) == (len(d.Taints) == 1 && d.Taints[0].Key == names.TaintUnhealthy)
	}
	isPublished := func(name string) bool {
		for _, d := range nodetest.Published(t, m.api) {
			if d.Name == name {
				return true
			}
		}
		return false
	}
	awaitDevices(t, m.api, false, fenced)
	require.Eventually(t, func() bool { return !isPublished(amdCard0) }, nodetest.Patience, nodetest.Tick, "NPS4 has no whole GPU")
	assert.True(t, isPublished(dpx0), "it is allocated")
	// A look at the very moment can read the mode before and the devices after: the next one reports it again.
	note := nodetest.AwaitEvent(t, m.api, "HeldDeviceGone", "the GPU's memory mode is now NPS4, in which it does not have it")
	assert.Contains(t, note, dpx0+" is held by claim team/claim-a, pod pod-a")
	assert.Contains(t, k.refused(c), "device "+dpx0+" does not exist on GPU "+amdCard0+": the GPU's mode or driver has changed")
	assert.False(t, k.granted(nodetest.Allocate(t, m.api, "b", cpx3)), "its container may be restarted with what is another partition now")

	// A restart forgets nothing of it.
	stop()
	k, _ = m.start()
	awaitDevices(t, m.api, false, fenced)
	assert.True(t, isPublished(dpx0))

	require.Empty(t, k.unprepare(c))
	awaitDevices(t, m.api, false, untainted)
	assert.False(t, isPublished(dpx0))
	nodetest.AwaitEvent(t, m.api, "HeldDeviceReleased", dpx0)
	k.works(nodetest.Allocate(t, m.api, "d", amdCard0+"-qpx-1"))
}

// beforeLive is the vendor of a simulated machine whose driver does something before it next
// lists the partitions of a GPU.
type beforeLive struct {
	hardware.Vendor
	do *atomic.Pointer[func()]
}

func (v beforeLive) Open(ctx context.Context) (*hardware.Opened, error) {
	o, err := v.Vendor.Open(ctx)
	if driver, ok := o.Driver.(*amd.Driver); err == nil && ok {
		o.Driver = beforeLiveDriver{driver, v.do}
	}
	return o, err
}

type beforeLiveDriver struct {
	*amd.Driver
	do *atomic.Pointer[func()]
}

func (d beforeLiveDriver) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	if do := d.do.Swap(nil); do != nil {
		(*do)()
	}
	return d.Driver.Live(ctx, pciAddress)
}

// The driver is reloaded after the plugin has listed the GPUs and before it compares them with
// the claims. The event has the cause all the same.
func TestMemoryModeChangedWithinALook(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	var do atomic.Pointer[func()]
	m.config.Machine.Vendors = func() ([]hardware.Vendor, error) {
		all, err := m.simulated.Hardware().Vendors()
		for i, v := range all {
			all[i] = beforeLive{v, &do}
		}
		return all, err
	}
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", dpx0))
	reloaded := make(chan error, 1)
	do.Store(new(func() {
		faults := amdgpu.Faults{MemoryModes: []amdgpu.MemoryModeFault{{GPU: amdAddress, Mode: "NPS4"}}}
		reloaded <- errors.Join(amdgpu.SetFaults(m.simulated.Root, faults), amdgpu.ReloadDriver(m.simulated.Root))
	}))
	require.NoError(t, <-reloaded)
	note := nodetest.AwaitEvent(t, m.api, "HeldDeviceGone", dpx0)
	assert.Contains(t, note, "the GPU's memory mode is now NPS4, in which it does not have it")
}
