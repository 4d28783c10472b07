package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// failing is something that fails.
type failing struct {
	name string
	// begin makes it fail.
	begin func()
	// attempts are the devices of claims that are refused then.
	attempts []string
	// affected tells which devices are tainted after that.
	affected func(resourceapi.Device) bool
	taint    string
	// event is a part of the event with this reason.
	reason, event string
}

// attractNobody checks that devices that cannot be prepared are tainted, and that the taint goes
// without a further claim when they can be.
func (m *machine) attractNobody(k *fakeKubelet, all []failing, end func()) {
	m.t.Helper()
	for i, f := range all {
		m.t.Log(f.name)
		f.begin()
		for j, device := range f.attempts {
			c := nodetest.Allocate(m.t, m.api, fmt.Sprintf("%d-%d", i, j), device)
			assert.Contains(m.t, k.refused(c), "until it succeeds, no other pod gets these devices: to have the pod scheduled to others, delete it")
			require.Empty(m.t, k.unprepare(c))
		}
		awaitDevices(m.t, m.api, false, func(d resourceapi.Device) bool {
			if !f.affected(d) {
				return untainted(d)
			}
			return len(d.Taints) == 1 && d.Taints[0].Key == f.taint
		})
		nodetest.AwaitEvent(m.t, m.api, f.reason, f.event)
		end()
		awaitDevices(m.t, m.api, false, untainted)
		m.nothingHeld()
	}
}

func onGPU0(d resourceapi.Device) bool    { return onGPU(d) == address0 }
func migOn0(d resourceapi.Device) bool    { return onGPU0(d) && strings.Contains(d.Name, "-mig-") }
func wholeGPU0(d resourceapi.Device) bool { return onGPU0(d) && !migOn0(d) }
func is1g10gb(d resourceapi.Device) bool {
	return onGPU0(d) && d.Attributes["profile"].StringValue != nil && *d.Attributes["profile"].StringValue == "1g.10gb"
}

// A GPU that cannot serve attracts nobody, whatever fails.
func TestFailingGPUAttractsNobody(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI()).withHealth()
	m.config.firstRetry = 200 * time.Millisecond
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	calls := func(call, gpu string, answer nvml.Return) func() {
		return func() {
			m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: call, GPU: gpu, Error: nvdriver.Return(answer)}}})
		}
	}
	const unhealthy, busy = names.TaintUnhealthy, names.TaintBusy
	m.attractNobody(k, []failing{
		{"the driver lists nothing", func() {
			calls("GetCount", "*", nvml.ERROR_UNKNOWN)()
			m.requireNotReady("the NVIDIA GPUs of this node cannot be listed")
		},
			nil, func(resourceapi.Device) bool { return true }, unhealthy, names.EventHardwareUnusable, "cannot list the NVIDIA GPUs"},
		{"the health of a GPU", calls("GetMemoryInfo", address0, nvml.ERROR_UNKNOWN), nil, onGPU0, unhealthy, names.EventGPUUnhealthy, card0},
		{"GPU instances", calls("CreateGpuInstance", address0, nvml.ERROR_UNKNOWN), []string{small0}, is1g10gb, unhealthy, names.EventDevicesFail, "CreateGpuInstance"},
		{"GPU instances of any profile", calls("CreateGpuInstance", address0, nvml.ERROR_INSUFFICIENT_RESOURCES), []string{small0, half0}, migOn0, unhealthy, names.EventDevicesFail, "nvidia-smi mig -lgi"},
		{"compute instances", calls("CreateComputeInstance", address0, nvml.ERROR_UNKNOWN), []string{small0}, is1g10gb, unhealthy, names.EventDevicesFail, "CreateComputeInstance"},
		{"MIG mode off, because of a process that NVML does not list",
			func() {
				m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: address0, PID: 77, Unlisted: true}}})
			},
			[]string{card0}, wholeGPU0, busy, names.EventGPUBusy, "the whole GPU"},
		{"MIG mode on, likewise", calls("SetMigMode", address0, nvml.ERROR_IN_USE), []string{small0}, migOn0, busy, names.EventGPUBusy, "DeviceSetMigMode"},
	}, func() { m.faults(nvdriver.Faults{}) })

	// Somebody switches MIG on under a whole GPU that a claim holds.
	c := nodetest.Allocate(t, m.api, "whole", card0)
	k.mustPrepare(c)
	library, err := nvdriver.New(m.inventory(), nvdriver.Options{Root: m.simulated.Root, Seed: nodetest.NodeName, Tools: m.simulated.Tools})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, library.Init())
	device, ret := library.DeviceGetHandleByPciBusId(address0)
	require.Equal(t, nvml.SUCCESS, ret)
	_, ret = device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) != onGPU0(d) })
	nodetest.AwaitEvent(t, m.api, names.EventHeldDeviceGone, card0)
	k.mustPrepare(c)
	mode, _, ret := device.GetMigMode()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.DEVICE_MIG_DISABLE, mode, "prepared, but nothing runs on the GPU")
	awaitDevices(t, m.api, false, untainted)
	require.Empty(t, k.unprepare(c))
}

// The same for modes of AMD's GPUs.
func TestFailingAMDGPUAttractsNobody(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	m.config.firstRetry = 200 * time.Millisecond
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	write := func(f amdgpu.WriteFault) func() {
		f.GPU, f.File = amdAddress, computeFile
		return func() { m.amdFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{f}}) }
	}
	isCPX := func(d resourceapi.Device) bool { return onGPU(d) == amdAddress && strings.Contains(d.Name, "-cpx-") }
	isDPX := func(d resourceapi.Device) bool { return onGPU(d) == amdAddress && strings.Contains(d.Name, "-dpx-") }
	m.attractNobody(k, []failing{
		{"writes without effect", write(amdgpu.WriteFault{Ignored: true}), []string{cpx3}, isCPX, names.TaintUnhealthy, names.EventDevicesFail, "amdgpu took mode CPX"},
		{"in use by nobody", write(amdgpu.WriteFault{Error: amdgpu.Errno(unix.EBUSY)}), []string{dpx0}, isDPX, names.TaintBusy, names.EventGPUBusy, "no process is seen"},
	}, func() { m.amdFaults(amdgpu.Faults{}) })
}

// What says nothing about other claims taints nothing.
func TestWhatAFailureTaints(t *testing.T) {
	device := gpu.Placement{GPU: address0, Type: gpu.TypeGPU}
	for want, err := range map[inventory.Step]error{
		inventory.StepClaim:  &claim.StepError{Op: steps.OpJoin, Any: true, Device: device},
		inventory.StepShare:  &claim.StepError{Op: steps.OpJoin, Device: device},
		inventory.StepCreate: &claim.StepError{Op: steps.OpCreate, Device: device},
	} {
		step, of := failedStep(err)
		assert.Equal(t, want, step)
		assert.Equal(t, device, of)
	}
	for _, err := range []error{errors.New("too much memory"), context.Canceled, context.DeadlineExceeded} {
		step, _ := failedStep(fmt.Errorf("prepare: %w", err))
		assert.Empty(t, step)
	}
}

// A device of a GPU that is gone is not tried.
func TestRetryOnAGPUThatIsGone(t *testing.T) {
	m := &monitor{base: &base{gpus: &inventory.GPUs{}}}
	assert.NotPanics(t, func() { m.retry(t.Context(), inventory.Failure{Placement: gpu.Placement{GPU: address0}}) })
}
