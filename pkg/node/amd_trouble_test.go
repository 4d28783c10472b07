package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// computeFile is what an AMD GPU is switched by.
const computeFile = "current_compute_partition"

// After a reboot the GPUs are in their default mode. The kubelet asks again for
// the claims of its pods, and gets the same.
func TestAMDReboot(t *testing.T) {
	for name, end := range map[string]func(root string) error{"driver reloaded": amdgpu.ReloadDriver, "rebooted": amdgpu.Reboot} {
		t.Run(name, func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			k, stop := m.start()
			c := nodetest.Allocate(t, m.api, "a", cpx3)
			k.mustPrepare(c)
			before := m.records()[0].Devices[0].LoadID
			stop()
			require.NoError(t, end(m.simulated.Root))
			require.Equal(t, "SPX", m.mode())

			k, _ = m.start()
			assert.Equal(t, []string{"gpu.tranche.dev/claim=" + cpx3 + "_a"}, k.mustPrepare(c))
			assert.Equal(t, "CPX", m.mode())
			assert.NotEqual(t, before, m.records()[0].Devices[0].LoadID)
			require.Empty(t, k.unprepare(c))
			k.works(nodetest.Allocate(t, m.api, "b", dpx0))
		})
	}
}

// A plugin that restarts finds what it left: the mode, and who holds what.
func TestAMDRestart(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	ids := k.mustPrepare(c)
	spec := m.spec("a")
	stop()
	m.api.ClearActions()
	k, _ = m.start()
	assert.Equal(t, ids, k.mustPrepare(c))
	assert.Equal(t, spec, m.spec("a"))
	assert.False(t, k.granted(nodetest.Allocate(t, m.api, "b", dpx0)))
	assert.Zero(t, nodetest.SliceWrites(m.api), "nothing has changed")
	require.Empty(t, k.unprepare(c))
	k.works(nodetest.Allocate(t, m.api, "c", dpx0))
}

// amdgpu holds nothing of us open, so it can be reloaded under a running
// plugin. What the other vendor's GPUs do goes on.
func TestDriverReloadOfOneVendorOnly(t *testing.T) {
	m := newMixedMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	nvidia, amd := nodetest.Allocate(t, m.api, "nvidia", small0), nodetest.Allocate(t, m.api, "amd", cpx3)
	k.mustPrepare(nvidia)
	k.mustPrepare(amd)
	uuid := m.record("nvidia").Devices[0].UUID
	require.NoError(t, amdgpu.ReloadDriver(m.simulated.Root))
	require.Equal(t, "SPX", m.mode())

	load := m.record("amd").Devices[0].LoadID
	require.Eventually(t, func() bool {
		k.mustPrepare(amd)
		return m.record("amd").Devices[0].LoadID != load
	}, nodetest.Patience, nodetest.Tick, "the new load is not noticed")
	assert.Equal(t, "CPX", m.mode())
	k.mustPrepare(nvidia)
	assert.Equal(t, uuid, m.record("nvidia").Devices[0].UUID)

	// And the other way round. NVIDIA's driver cannot go while the plugin runs.
	stop()
	before := m.record("amd")
	require.NoError(t, nvdriver.ReloadDriver(m.simulated.Root))
	k, _ = m.start()
	k.mustPrepare(amd)
	assert.Equal(t, before, m.record("amd"))
	k.mustPrepare(nvidia)
	assert.Equal(t, []string{small0}, m.partitions(), "made again")
	require.Empty(t, k.unprepare(nvidia))
	require.Empty(t, k.unprepare(amd))
	m.nothingHeld()
}

// Whatever goes wrong in a switch is said, leaves nothing behind, and the next
// try works.
func TestSwitchFails(t *testing.T) {
	write := func(f amdgpu.WriteFault) amdgpu.Faults {
		f.GPU, f.File, f.Times = amdAddress, computeFile, 1
		return amdgpu.Faults{Writes: []amdgpu.WriteFault{f}}
	}
	for name, tt := range map[string]struct {
		faults  amdgpu.Faults
		message string
	}{
		"a write that succeeds and changes nothing": {write(amdgpu.WriteFault{Ignored: true}), "amdgpu took mode CPX without an error, but the GPU is in SPX"},
		"KFD does not come back":                    {write(amdgpu.WriteFault{Error: amdgpu.Errno(unix.EIO)}), "KFD could not be started again on the GPU"},
		"fewer KFD nodes than asked": {amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: amdAddress, Partitions: []int{3}, Missing: "kfd"}}},
			"KFD has only 7 of the 8 partitions of mode CPX, and not that with index 3"},
		"a process that takes the GPU between check and write": {
			amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: amdAddress, File: computeFile, Process: &amdgpu.Process{PID: 77, Name: "rocminfo", GPUs: []string{amdAddress}}}}},
			"process 77 (rocminfo) uses it"},
		"a GPU in reset":      {amdgpu.Faults{Resetting: []string{amdAddress}}, "reset"},
		"a GPU that vanishes": {amdgpu.Faults{Lost: []string{amdAddress}}, "GPU " + amdAddress},
	} {
		t.Run(name, func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			k, _ := m.start()
			awaitDevices(t, m.api, false, untainted)
			m.amdFaults(tt.faults)
			c := nodetest.Allocate(t, m.api, "a", cpx3)
			assert.Contains(t, k.refused(c), tt.message)
			m.nothingHeld()
			other := nodetest.Allocate(t, m.api, "other", amdCard1+"-cpx-3")
			k.mustPrepare(other)
			require.Empty(t, k.unprepare(other))

			m.amdFaults(amdgpu.Faults{})
			_ = amdgpu.EndProcess(m.simulated.Root, 77)
			require.Eventually(t, func() bool { return k.prepare(c)["a"].Error == "" }, nodetest.Patience, nodetest.Tick, "the next try works")
			assert.Equal(t, "CPX", m.mode())
			require.Empty(t, k.unprepare(c))
			m.nothingHeld()
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

// A claim for a device of a mode, or of a chip, that there is not.
func TestModeThatTheGPULacks(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "a", amdCard0+"-tpx-1")), "device "+amdCard0+"-tpx-1 does not exist on GPU "+amdCard0)
	m.nothingHeld()
	k.works(nodetest.Allocate(t, m.api, "b", cpx3))
}

// A partition that KFD does not have is fenced alone, as long as it is missing;
// its holder is told.
func TestMissingPartition(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	awaitDevices(t, m.api, false, untainted)
	m.amdFaults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: amdAddress, Partitions: []int{3}, Missing: "kfd"}}})
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) == (d.Name != cpx3) })
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "PartitionMissing", "cpx-3"), "KFD has only 7 of the 8 partitions")
	b := nodetest.Allocate(t, m.api, "b", amdCard0+"-cpx-4")
	k.mustPrepare(b)
	require.Empty(t, k.unprepare(b))
	m.amdFaults(amdgpu.Faults{})
	awaitDevices(t, m.api, false, untainted)
	nodetest.AwaitEvent(t, m.api, "PartitionFound", "")
}

// What becomes wrong with an AMD GPU takes it out of service, tells who is on
// it, and is over when the GPU is healthy again.
func TestAMDHealth(t *testing.T) {
	for name, tt := range map[string]struct {
		faults amdgpu.Faults
		note   string
	}{
		"errors":   {amdgpu.Faults{RAS: []amdgpu.RAS{{GPU: amdAddress, Uncorrectable: 2}}}, "2 errors that could not be corrected"},
		"reset":    {amdgpu.Faults{Resetting: []string{amdAddress}}, "reset"},
		"lost GPU": {amdgpu.Faults{Lost: []string{amdAddress}}, amdCard0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			k, _ := m.start()
			k.mustPrepare(nodetest.Allocate(t, m.api, "a", cpx3))
			awaitDevices(t, m.api, false, untainted)
			m.amdFaults(tt.faults)
			awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) == (onGPU(d) != amdAddress) })
			note := nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", tt.note)
			assert.Contains(t, note, cpx3+" is held by claim team/claim-a, pod pod-a")
			m.amdFaults(amdgpu.Faults{})
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

// Who serves AMD's GPUs is left alone, and NVIDIA's are published.
func TestOwnerOfOneVendorsGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		api  *fake.Clientset
		gone func(*machine) error
		note string
	}{
		"device config manager": {nodetest.NewAPI(), func(m *machine) error { return os.RemoveAll(filepath.Join(m.config.procRoot, "4321")) }, "process /home/amd/bin/server of AMD's device config manager runs here"},
		"AMD's DRA driver": {nodetest.NewAPI(nodetest.AMDSlice(resourceapi.Device{Name: "gpu-1-128"})), func(m *machine) error {
			return m.api.ResourceV1().ResourceSlices().Delete(t.Context(), "amd", metav1.DeleteOptions{})
		}, "DRA driver gpu.amd.com publishes devices of this node"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMixedMachine(t, tt.api)
			if strings.HasPrefix(name, "device") {
				nodetest.AddProcess(t, m.config.procRoot, 4321, nodetest.RealConfigManager)
			}
			_, _ = m.start()
			ofAMD := func() (n int) {
				for _, d := range nodetest.Published(t, m.api) {
					if onGPU(d) == amdAddress {
						n++
					}
				}
				return n
			}
			awaitDevices(t, m.api, false, untainted)
			assert.Zero(t, ofAMD())
			assert.Contains(t, nodetest.AwaitEvent(t, m.api, "OtherOwner", "AMD"), tt.note)
			require.NoError(t, tt.gone(m))
			require.Eventually(t, func() bool { return ofAMD() == 15+2 }, nodetest.Patience, nodetest.Tick)
			nodetest.AwaitEvent(t, m.api, "OtherOwnerGone", "AMD")
		})
	}
}

// An installation that ends leaves nothing of AMD's either.
func TestAMDUninstall(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	m.config.UninstallOrder = "gpus/tranche-uninstall"
	m.config.NodeLabels = true
	k, stop := m.start()
	awaitSlices(t, m.api)
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	node, err := m.api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, node.Labels, "the labels are NVIDIA's")
	order(t, m.api, "uninstalling", "false", "1")
	nodetest.AwaitEvent(t, m.api, "Uninstalling", "withdrawn")
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "b", cpx3[:len(cpx3)-1]+"4")), "Tranche is being uninstalled")
	require.Empty(t, k.unprepare(c))
	awaitNoSlices(t, m.api)
	stop()
	assert.NoDirExists(t, m.config.DataDir())
	assert.NoDirExists(t, m.simulated.Root)
	assert.Empty(t, m.files(m.config.CDIDir, "*"))
}

// The plugin dies while the kernel is at work on a switch, before it and after
// it took effect: nothing is allocated twice, and the next try works.
func TestPluginKilledDuringSwitch(t *testing.T) {
	for _, at := range []string{"before", "after"} {
		t.Run(map[string]string{"before": "in the write", "after": "between write and read-back"}[at], func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			_, stop := m.start() // the simulated machine is there for faults
			stop()
			c := nodetest.Allocate(t, m.api, "a", cpx3)
			kill := m.startChild(c)
			k := m.register()
			m.amdFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: amdAddress, File: computeFile, Times: 1, Hang: at}}})
			answered := make(chan error, 1)
			go func() {
				_, err := k.dra.NodePrepareResources(context.Background(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
				answered <- err
			}()
			m.awaitHangIn("amdgpu.json")
			took := map[string]string{"before": "SPX", "after": "CPX"}[at]
			require.Eventually(t, func() bool { return m.mode() == took }, nodetest.Patience, nodetest.Tick)
			kill()
			require.Error(t, <-answered)
			m.amdFaults(amdgpu.Faults{})
			require.Equal(t, took, m.mode())

			k, _ = m.start()
			assert.False(t, k.granted(nodetest.Allocate(t, m.api, "b", dpx0)), "claim a may have it")
			assert.Equal(t, []string{"gpu.tranche.dev/claim=" + cpx3 + "_a"}, k.mustPrepare(c), "the next try works")
			assert.Equal(t, "CPX", m.mode())
			require.Empty(t, k.unprepare(c))
			k.works(nodetest.Allocate(t, m.api, "d", dpx0))
		})
	}
}

// A driver that is installed after the plugin has started is taken in, and what
// the plugin does for the other GPUs goes on.
func TestDriverInstalledLater(t *testing.T) {
	m := newMixedMachine(t, nodetest.NewAPI())
	// NVIDIA's driver is there and not loaded.
	_, stop := m.start()
	stop()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "Init", GPU: "*", Error: 9}}})
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "b", small0)), "the NVIDIA driver of GPU "+card0+" cannot be used: open NVML")
	m.faults(nvdriver.Faults{})
	nodetest.AwaitEvent(t, m.api, "DriverFound", "NVIDIA")
	d := nodetest.Allocate(t, m.api, "d", small0)
	require.Eventually(t, func() bool { return k.prepare(d)["d"].Error == "" }, nodetest.Patience, nodetest.Tick)
	awaitSlices(t, m.api)
	require.Empty(t, k.unprepare(d))
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}

// Somebody changes a GPU's mode under a claim.
func TestAMDModeChangedUnderAClaim(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	require.NoError(t, m.kernel().WriteFile("/sys/bus/pci/devices/"+amdAddress+"/current_compute_partition", []byte("SPX")))
	note := nodetest.AwaitEvent(t, m.api, "HeldDeviceGone", cpx3)
	assert.Contains(t, note, "somebody other than Tranche has changed how the GPU is partitioned")
	require.Empty(t, k.unprepare(c))
	nodetest.AwaitEvent(t, m.api, "HeldDeviceReleased", cpx3)
	awaitDevices(t, m.api, false, untainted)
}
