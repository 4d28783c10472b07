package amdgpu

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

const (
	modelFile = "current_memory_partition"
	loadedDir = "/sys/module/amdgpu"
)

func modprobe(t *testing.T, k *Kernel, args ...string) (string, error) {
	t.Helper()
	said, err := k.Modprobe(t.Context(), "modprobe", args...)
	return string(said), err
}

func works(t *testing.T, k *Kernel, args ...string) {
	t.Helper()
	said, err := modprobe(t, k, args...)
	require.NoError(t, err, said)
	require.Empty(t, said)
}

func exists(k *Kernel, name string) bool {
	_, err := k.Stat(name)
	return err == nil
}

func TestModprobe(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, k.WriteFile(of(first, modelFile), []byte("NPS4")))
	before, err := k.Stat(loadedDir)
	require.NoError(t, err)
	nodes := gpuNodes(t, k, "")

	works(t, k, "-r", "amdgpu")
	for _, gone := range []string{loadedDir, "/sys/bus/pci/drivers/amdgpu", of(first, modelFile), of(first, "driver"), of(first, "drm"), "/sys/class/kfd/kfd", "/dev/kfd", "/dev/dri"} {
		assert.False(t, exists(k, gone), gone)
	}
	for _, stays := range []string{"vendor", "device", "subsystem_vendor", "subsystem_device", "class"} {
		assert.True(t, exists(k, of(first, stays)), stays)
	}
	assert.ErrorIs(t, switchTo(k, first, "CPX"), os.ErrNotExist)
	assert.ErrorContains(t, StartProcess(k.root, Process{PID: 1}), "amdgpu is not loaded")
	works(t, k, "-r", "amdgpu")

	k = machineIn(t, "mi300x8", k.root)
	assert.False(t, exists(k, loadedDir), "another process sees it, too")
	works(t, k, "amdgpu")
	after, err := k.Stat(loadedDir)
	require.NoError(t, err)
	assert.NotEqual(t, before.Inode, after.Inode)
	assert.Equal(t, "NPS4", read(t, k, of(second, modelFile)))
	assert.Equal(t, "CPX", mode(t, k, first), "what the driver chooses with it")
	loaded := gpuNodes(t, k, "")
	require.Len(t, loaded, 64)
	assert.NotEqual(t, nodes[0].gpuID, loaded[0].gpuID)

	works(t, k, "amdgpu")
	again, err := k.Stat(loadedDir)
	require.NoError(t, err)
	assert.Equal(t, after.Inode, again.Inode, "one that is loaded is not loaded again")

	works(t, k, "-r", "amdgpu")
	require.NoError(t, Reboot(k.root))
	assert.Equal(t, "NPS1", read(t, k, of(second, modelFile)), "a start of the machine loads the driver, and it is as ever")
	assert.Equal(t, "SPX", mode(t, k, first))
}

// Every model comes up in the mode that its driver chooses.
func TestModprobeBringsTheAutomaticMode(t *testing.T) {
	for _, name := range []string{"mi300x8", "mi300a4", "mi308x8", "mi325x8", "mi350x8", "mi355x8"} {
		k := machine(t, name)
		model := k.inventory.AMD[0].Model
		pci := k.inventory.AMD[0].PCI
		for _, memory := range model.MemoryModes {
			if len(model.MemoryModes) > 1 {
				require.NoError(t, k.WriteFile(of(pci, modelFile), []byte(memory)))
			}
			works(t, k, "-r", "amdgpu")
			works(t, k, "amdgpu")
			assert.Equal(t, string(memory), read(t, k, of(pci, modelFile)), name)
			assert.Equal(t, string(model.AutoMode(memory)), mode(t, k, pci), "%s %s", name, memory)
			assert.Contains(t, xcp.Legal(model.Chip(false), memory), model.AutoMode(memory), "%s %s", name, memory)
		}
	}
}

func TestModprobeRefusesWhatIsInUse(t *testing.T) {
	const inUse = "modprobe: FATAL: Module amdgpu is in use.\n"
	k := machine(t, "mi300x8")
	refused := func(why string) {
		t.Helper()
		said, err := modprobe(t, k, "-r", "amdgpu")
		assert.EqualError(t, err, "exit status 1", why)
		assert.Equal(t, inUse, said, why)
		assert.True(t, exists(k, loadedDir), why)
	}
	require.NoError(t, StartProcess(k.root, Process{PID: 4242}))
	assert.Equal(t, "1", read(t, k, loadedDir+"/refcnt"))
	refused("a process that only has KFD open")
	require.NoError(t, EndProcess(k.root, 4242))

	set(t, k, Faults{Processes: []Process{{PID: 7}}, Holders: []string{"amdgpu_peer"}})
	assert.Equal(t, "2", read(t, k, loadedDir+"/refcnt"))
	refused("one of faults.yaml")
	set(t, k, Faults{Holders: []string{"amdgpu_peer"}})
	assert.Equal(t, []string{"amdgpu_peer"}, names(t, k, loadedDir+"/holders"))
	refused("another module")

	set(t, k, Faults{Driver: []DriverFault{{Step: "unload", Error: "in use", Times: 1}}})
	assert.Equal(t, "0", read(t, k, loadedDir+"/refcnt"))
	refused("nobody knows who")
	works(t, k, "-r", "amdgpu")
}

func TestLoadFailsNTimes(t *testing.T) {
	for name, want := range map[string]string{
		"no device":    "modprobe: ERROR: could not insert 'amdgpu': No such device\n",
		"key rejected": "modprobe: ERROR: could not insert 'amdgpu': Key was rejected by service\n",
		"not found":    "modprobe: FATAL: Module amdgpu not found in directory /lib/modules/6.8.0-simulated\n",
	} {
		root := memory.TempDir(t)
		k := machineIn(t, "mi300x8", root)
		set(t, k, Faults{Driver: []DriverFault{{Step: "load", Error: name, Times: 2}}})
		works(t, k, "amdgpu") // to load what is loaded is no step
		works(t, k, "-r", "amdgpu")
		for range 2 {
			said, err := modprobe(t, k, "amdgpu")
			require.EqualError(t, err, "exit status 1")
			assert.Equal(t, want, said)
			k = machineIn(t, "mi300x8", root) // the count outlives the process
			assert.False(t, exists(k, loadedDir))
		}
		works(t, k, "amdgpu")
		assert.True(t, exists(k, loadedDir))
	}
}

func TestLoadThatLeavesAGPUOut(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Driver: []DriverFault{{Step: "load", Missing: []string{second}, Times: 1}}})
	works(t, k, "-r", "amdgpu")
	works(t, k, "amdgpu")
	assert.True(t, exists(k, of(second, "vendor")), "the GPU is on the bus")
	assert.False(t, exists(k, of(second, "driver")), "the driver did not take it")
	assert.Empty(t, gpuNodes(t, k, second))
	assert.NotEmpty(t, gpuNodes(t, k, first))
	works(t, k, "-r", "amdgpu")
	works(t, k, "amdgpu")
	assert.NotEmpty(t, gpuNodes(t, k, second), "the next load takes it")
}

func TestLoadThatLosesTheMemoryMode(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Driver: []DriverFault{{Step: "load", MemoryModeLost: []string{second}, Times: 1}}})
	for _, want := range []string{"NPS1", "NPS4"} {
		require.NoError(t, k.WriteFile(of(second, modelFile), []byte("NPS4")))
		works(t, k, "-r", "amdgpu")
		works(t, k, "amdgpu")
		assert.Equal(t, want, read(t, k, of(second, modelFile)))
		assert.Equal(t, "NPS4", read(t, k, of(first, modelFile)))
	}
}

func TestModprobeTakesTime(t *testing.T) {
	var slept []time.Duration
	inv, err := models.LoadInventory("mi300x8")
	require.NoError(t, err)
	inv.AMDDriver.Delays.LoadDriver = 3 * time.Second
	k, err := New(inv, Options{Root: memory.TempDir(t), Sleep: func(d time.Duration) { slept = append(slept, d) }, Logf: t.Logf})
	require.NoError(t, err)
	set(t, k, Faults{Driver: []DriverFault{
		{Step: "unload", Delay: metav1.Duration{Duration: 2 * time.Second}},
		{Step: "load", Delay: metav1.Duration{Duration: 4 * time.Second}},
	}})
	works(t, k, "-r", "amdgpu")
	works(t, k, "amdgpu")
	assert.Equal(t, []time.Duration{2 * time.Second, 7 * time.Second}, slept)

	// One that takes too long is ended, and changes nothing.
	forever := make(chan struct{})
	defer close(forever)
	k.sleepFor = func(time.Duration) { <-forever }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Modprobe(ctx, "modprobe", "-r", "amdgpu")
	require.EqualError(t, err, "signal: killed")
	assert.True(t, exists(k, loadedDir))
}

// In the kernel no signal reaches modprobe.
func TestModprobeHangs(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Driver: []DriverFault{{Step: "unload", Hang: true}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan error, 1)
	go func() {
		_, err := k.Modprobe(ctx, "modprobe", "-r", "amdgpu")
		done <- err
	}()
	select {
	case <-done:
		require.Fail(t, "it should hang")
	case <-time.After(3 * hangPoll):
	}
	set(t, k, Faults{})
	require.NoError(t, <-done)
	assert.False(t, exists(k, loadedDir))
}

func TestModprobeOfOtherThings(t *testing.T) {
	k := machine(t, "mi300x8")
	for _, args := range [][]string{{"nvidia"}, {"-r", "nvidia"}, {}, {"-rv", "amdgpu"}} {
		said, err := modprobe(t, k, args...)
		require.Error(t, err)
		assert.Contains(t, said, "does not know how to do that")
	}
	_, err := k.Modprobe(t.Context(), "rmmod", "amdgpu")
	require.Error(t, err)
	require.NoError(t, os.RemoveAll(k.root))
	_, err = k.Modprobe(t.Context(), "modprobe", "amdgpu")
	assert.ErrorContains(t, err, "no simulated AMD GPUs")
}

func TestBadDriverFaults(t *testing.T) {
	for text, want := range map[string]string{
		"driver: [{}]": `amd.driver[0].step: "" is neither unload nor load`,
		"driver: [{step: reload, error: in use}]":                  `amd.driver[0].step: "reload"`,
		"driver: [{step: load, error: in use}]":                    `amd.driver[0].error: "in use" is not one of load's: choose one of key rejected, no device, not found`,
		"driver: [{step: unload}]":                                 "amd.driver[0].error: it does nothing",
		"driver: [{step: unload, missing: ['*']}]":                 "amd.driver[0].step: missing and memoryModeLost",
		"driver: [{step: load, missing: [x]}]":                     `amd.driver[0].missing[0].gpu: "x"`,
		"driver: [{step: load, memoryModeLost: [x]}]":              `amd.driver[0].memoryModeLost[0].gpu: "x"`,
		"driver: [{step: load, hang: true, times: -1}]":            "amd.driver[0].times: -1",
		"driver: [{step: load, delay: -1s}]":                       "amd.driver[0].delay: -1s",
		"driver: [{step: load, hang: yes please}]":                 "not valid faults",
		"driver: [{step: load, error: no device, when: 1}]":        `unknown field "when"`,
		"holders: ['a b']":                                         `amd.holders[0]: "a b" is not the name of a kernel module`,
		"holders: ['']":                                            "amd.holders[0]",
		"holders: [../x]":                                          "amd.holders[0]",
		"driver: [{step: load, error: no device, missing: ['*']}]": "amd.driver[0].error: a load that fails brings nothing",
	} {
		_, err := ParseFaults([]byte("amd:\n  " + text))
		assert.ErrorContains(t, err, want, text)
	}
}
