package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// guest is a vGPU.
type guest struct{ nvml.Device }

func (guest) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return nvml.GPU_VIRTUALIZATION_MODE_VGPU, nvml.SUCCESS
}

func TestModes(t *testing.T) {
	isGuest := trapping(func(d nvml.Device) nvml.Device { return guest{d} })
	for _, test := range []struct {
		name, inventory string
		change          []func(*Config)
		want            gpu.Modes
	}{
		{"Hopper", "h100x8", nil, gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff}},
		{"Ampere", "a100-40x8", nil, gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOn, MIGNeedsReset: true}},
		{"Ampere off", "a100-40x8-mig-off", nil, gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff, MIGNeedsReset: true}},
		{"vGPU", "h100x8", []func(*Config){isGuest}, gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff, MIGFixed: true}},
		{"no MIG", "l4x4", nil, gpu.Modes{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := simulated(t, test.inventory, test.change...)
			got, err := m.Modes(t.Context(), m.GPUs()[0].PCIAddress)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestSetMIG(t *testing.T) {
	for _, name := range []string{"h100x8", "a100-40x8", "a30x4", "b200x8", "rtxpro6000x4"} {
		t.Run(name, func(t *testing.T) {
			m, smi := ampere(t, name)
			address := m.GPUs()[0].PCIAddress
			for _, mode := range []gpu.MIGMode{gpu.MIGOff, gpu.MIGOn, gpu.MIGOn, gpu.MIGOff} {
				require.NoError(t, m.SetMIG(t.Context(), address, mode == gpu.MIGOn, false))
				m.RequireMIG(mode, mode)
			}
			assert.Empty(t, smi.Ran, "NVML resets a GPU that nobody is on")
		})
	}
}

func TestSetMIGOfGPUsThatHaveNone(t *testing.T) {
	m := simulated(t, "l4x4")
	address := m.GPUs()[0].PCIAddress
	require.NoError(t, m.SetMIG(t.Context(), address, false, false))
	assert.ErrorIs(t, m.SetMIG(t.Context(), address, true, false), gpu.ErrNotSupported)

	m = simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return guest{d} }))
	address = m.GPUs()[0].PCIAddress
	require.NoError(t, m.SetMIG(t.Context(), address, false, false))
	err := m.SetMIG(t.Context(), address, true, false)
	require.ErrorIs(t, err, gpu.ErrNotSupported)
	assert.ErrorContains(t, err, "hypervisor")
	assert.Error(t, m.SetMIG(t.Context(), "0000:ff:00.0", true, false))
}

func TestSetMIGUnderAClient(t *testing.T) {
	for _, name := range []string{"h100x8", "a100-40x8-mig-off"} {
		m, smi := ampere(t, name)
		address := m.GPUs()[0].PCIAddress
		require.NoError(t, nvdriver.AddProcess(m.Root, nvdriver.Process{GPU: address, PID: 11}))
		for _, leavePending := range []bool{false, true} {
			err := m.SetMIG(t.Context(), address, true, leavePending)
			require.ErrorIs(t, err, gpu.ErrInUse)
			assert.NotErrorIs(t, err, gpu.ErrNeedsReset)
			assert.ErrorContains(t, err, "process 11")
			m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
		}
		assert.Empty(t, smi.Ran)
	}
}

// A driver that does not list clients refuses the call that follows, if there are any. One whose list
// fails might not.
func TestSetMIGWithoutAListOfClients(t *testing.T) {
	for ret, mode := range map[nvml.Return]gpu.MIGMode{
		nvml.ERROR_NOT_SUPPORTED: gpu.MIGOn, nvml.ERROR_NO_PERMISSION: gpu.MIGOn, nvml.ERROR_UNKNOWN: gpu.MIGOff,
	} {
		m, _ := ampere(t, "h100x8")
		address := m.GPUs()[0].PCIAddress
		m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetComputeRunningProcesses", GPU: address, Error: nvdriver.Return(ret)}}})
		err := m.SetMIG(t.Context(), address, true, false)
		m.NoFaults()
		assert.Equal(t, mode == gpu.MIGOn, err == nil, "%v: %v", ret, err)
		m.RequireMIG(mode, mode)
	}
}

func TestSetMIGOffDestroysNothing(t *testing.T) {
	for _, name := range []string{"h100x8", "a100-40x8"} {
		m, smi := ampere(t, name)
		g := m.GPUs()[0]
		g = g.WithMIG(gpu.MIGOn)
		m.Made(g.Placements[0])
		err := m.SetMIG(t.Context(), g.PCIAddress, false, true)
		require.ErrorIs(t, err, gpu.ErrInUse)
		assert.ErrorContains(t, err, g.Placements[0].Name())
		m.RequireMIG(gpu.MIGOn, gpu.MIGOn)
		assert.Len(t, m.Partitions(g.PCIAddress), 1)
		assert.Empty(t, smi.Ran)
		require.NoError(t, m.Destroy(t.Context(), g.Placements[0]))
		require.NoError(t, m.SetMIG(t.Context(), g.PCIAddress, false, false))
	}
}

// NVML could not reset the GPU, nvidia-smi can: the simulator refuses that to it
// while anybody has a session of NVML.
func TestResetRefusedOnceThenWorks(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, false))
	m.RequireMIG(gpu.MIGOn, gpu.MIGOn)
	assert.Equal(t, []string{"nvidia-smi --gpu-reset -i " + ampere0}, smi.Ran)
	g := m.GPUs()[0]
	m.Made(g.Placements[0])
	modes, err := m.Modes(t.Context(), m.GPUs()[1].PCIAddress)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGOff, modes.MIG, "the other GPUs stay as they are")
}

func TestResetRefusedIsPutBack(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.RefuseResets(nvstate.ResetFault{GPU: "*", Refused: true})
	err := m.SetMIG(t.Context(), ampere0, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	assert.NotErrorIs(t, err, gpu.ErrInUse)
	for _, want := range []string{"GPU " + ampere0, "switch MIG on", "Resetting GPU 00000000:07:00.0 is not supported", "nvidia-persistenced", "reboot the node", "it stays off"} {
		assert.ErrorContains(t, err, want)
	}
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
	assert.Len(t, smi.Ran, 1)
	m.NoFaults()
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, false))
}

func TestLeavePending(t *testing.T) {
	m, _ := ampere(t, "a100-40x8-mig-off")
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true})
	for range 2 {
		err := m.SetMIG(t.Context(), ampere0, true, true)
		require.ErrorIs(t, err, gpu.ErrNeedsReset)
		assert.ErrorContains(t, err, "it is on after the next reset of the GPU or reboot of the node")
		m.RequireMIG(gpu.MIGOff, gpu.MIGOn)
	}
	require.NoError(t, m.SetMIG(t.Context(), ampere0, false, false), "it is off")
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)

	require.ErrorIs(t, m.SetMIG(t.Context(), ampere0, true, true), gpu.ErrNeedsReset)
	require.NoError(t, nvdriver.Reboot(m.Root))
	m.RequireMIG(gpu.MIGOn, gpu.MIGOn)
	require.NoError(t, m.SetMIG(t.Context(), ampere0, true, true))
}

func TestResetThatHangs(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1}, nvstate.ResetFault{GPU: ampere0, Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	smi.First = cancel
	err := m.SetMIG(ctx, ampere0, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "nvidia-smi --gpu-reset does not end")
	m.NoFaults()
	smi.Running.Wait()
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
}

// What no signal ends is left behind: the other GPUs must have NVML again.
func TestResetThatHangsInTheKernel(t *testing.T) {
	release := make(chan struct{})
	ctx := nvidiatest.Expiring{Context: t.Context(), Passed: make(chan struct{})}
	m := simulated(t, "a100-40x8-mig-off", func(c *Config) {
		c.Run = func(context.Context, string, ...string) ([]byte, error) {
			close(ctx.Passed)
			<-release
			return nil, errors.New("signal: killed")
		}
	})
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	err := m.SetMIG(ctx, ampere0, true, false)
	close(release)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "nvidia-smi --gpu-reset hangs in the kernel and cannot be ended; look in dmesg")
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
}

func TestGPUOffTheBusDuringItsReset(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
	smi.First = func() { m.SetFaults(nvdriver.Faults{Lost: []string{ampere0}}) }
	err := m.SetMIG(t.Context(), ampere0, true, false)
	require.ErrorIs(t, err, nvml.ERROR_GPU_IS_LOST)
	assert.NotErrorIs(t, err, gpu.ErrNeedsReset)
	assert.ErrorContains(t, err, "GPU is lost")
	m.NoFaults()
	m.RequireMIG(gpu.MIGOff, gpu.MIGOn)
	require.NoError(t, m.SetMIG(t.Context(), ampere0, false, false))
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
}

func TestModeSetBySomebodyElseDuringTheReset(t *testing.T) {
	for _, refused := range []bool{false, true} {
		m, smi := ampere(t, "a100-40x8-mig-off")
		m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true, Times: 1})
		smi.First = func() {
			m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: refused, Delay: metav1.Duration{Duration: time.Nanosecond}})
			require.Equal(t, nvml.SUCCESS, m.NVML.Init())
			_, ret := m.Device(0).SetMigMode(nvml.DEVICE_MIG_DISABLE)
			require.Equal(t, nvml.SUCCESS, ret)
			require.Equal(t, nvml.SUCCESS, m.NVML.Shutdown())
		}
		err := m.SetMIG(t.Context(), ampere0, true, false)
		assert.ErrorContains(t, err, "somebody else set it off meanwhile")
		assert.NotErrorIs(t, err, gpu.ErrNeedsReset)
		m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
	}
}

// Some virtual machines say that a GPU was reset when it was not
// (NVIDIA/mig-parted#9).
func TestResetThatDidNothing(t *testing.T) {
	m := simulated(t, "a100-40x8-mig-off", func(c *Config) {
		c.Run = func(context.Context, string, ...string) ([]byte, error) { return []byte("All done."), nil }
	})
	m.RefuseResets(nvstate.ResetFault{GPU: ampere0, Refused: true})
	err := m.SetMIG(t.Context(), ampere0, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	assert.ErrorContains(t, err, "but it was not")
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
}

func TestSetMIGRefusedOutright(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.Fail("SetMigMode", nvml.ERROR_NO_PERMISSION, 1)
	err := m.SetMIG(t.Context(), ampere0, true, false)
	require.ErrorIs(t, err, nvml.ERROR_NO_PERMISSION)
	assert.NotErrorIs(t, err, gpu.ErrNeedsReset)
	m.RequireMIG(gpu.MIGOff, gpu.MIGOff)
	assert.Empty(t, smi.Ran)
}

func TestSetMIGThatHangsInNVML(t *testing.T) {
	m, smi := ampere(t, "a100-40x8-mig-off")
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "SetMigMode", GPU: ampere0, Hang: true, Times: 1}}})
	err := m.SetMIG(m.UntilFault(), ampere0, true, false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "DeviceSetMigMode")
	m.SettleFaults()
	modes, err := m.Modes(t.Context(), ampere0)
	require.NoError(t, err)
	assert.Equal(t, modes.MIG, modes.PendingMIG, "it is one or the other, and nothing waits")
	assert.Empty(t, smi.Ran)
}

// TestLayoutsOfEveryModel makes whole layouts, in any order, and takes them away.
func TestLayoutsOfEveryModel(t *testing.T) {
	for _, test := range []struct{ inventory, cuts string }{
		{"a100-40x8", "3g.20gb@4 2g.10gb@0 1g.5gb@2 1g.5gb@3"},
		{"a100-40x8", "4g.20gb@0 3g.20gb@4"},
		{"a100-40x8-mig-off", "1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6"},
		{"a100-80x8", "3g.40gb@4 2g.20gb@0 1g.10gb@2 1g.10gb@3"},
		{"a30x4", "2g.12gb@0 1g.6gb@2 1g.6gb@3"},
		{"h100x8", "3g.40gb@4 2g.20gb@0 1g.10gb@2 1g.10gb@3"},
		{"h100x8", "7g.80gb@0"},
		{"h200x8", "3g.71gb@4 2g.35gb@0 1g.18gb@2 1g.18gb@3"},
		{"b200x8", "3g.90gb@4 2g.45gb@0 1g.23gb@2 1g.23gb@3"},
		{"rtxpro6000x4", "2g.48gb@6 1g.24gb@0 1g.24gb@3"},
	} {
		t.Run(test.inventory+" "+test.cuts, func(t *testing.T) {
			m, _ := ampere(t, test.inventory)
			g := m.GPUs()[0]
			g = g.WithMIG(gpu.MIGOn)
			layout := placements(t, &g, test.cuts)
			require.NoError(t, m.SetMIG(t.Context(), g.PCIAddress, true, false))
			for round := range 3 {
				made := map[string]gpu.Partition{}
				for _, p := range layout {
					partition := m.Made(p)
					assert.True(t, partition.Complete)
					made[p.Name()] = partition
				}
				for _, p := range layout {
					assert.Equal(t, made[p.Name()], m.Made(p), "what is there is found")
				}
				assert.Len(t, m.Partitions(g.PCIAddress), len(layout))
				slices.Reverse(layout)
				if round == 1 {
					layout = append(layout[1:], layout[0])
				}
				for _, p := range layout {
					require.NoError(t, m.Destroy(t.Context(), p))
				}
				assert.Empty(t, m.Partitions(g.PCIAddress))
			}
			require.NoError(t, m.SetMIG(t.Context(), g.PCIAddress, false, false))
		})
	}
}

// placements reads "3g.40gb@4 1g.10gb@0".
func placements(t *testing.T, g *gpu.GPU, cuts string) []gpu.Placement {
	t.Helper()
	var all []gpu.Placement
	for cut := range strings.FieldsSeq(cuts) {
		i := slices.IndexFunc(g.Placements, func(p gpu.Placement) bool { return fmt.Sprintf("%s@%d", p.Profile, p.Start) == cut })
		require.GreaterOrEqual(t, i, 0, cut)
		all = append(all, g.Placements[i])
	}
	return all
}

func TestEveryInventoryIsSwitched(t *testing.T) {
	for _, name := range nvidiatest.Inventories(t) {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		if !inv.GPUs[0].Model.HasMIG() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m, _ := ampere(t, name)
			g := m.GPUs()[0]
			require.NoError(t, m.SetMIG(t.Context(), g.PCIAddress, true, false))
			on := m.GPUs()[0]
			if g.OtherMIG != nil {
				g.LinkGroup = "" // Ampere turns its NVLinks off in MIG mode
			}
			assert.Equal(t, g.WithMIG(gpu.MIGOn), on)
		})
	}
}
