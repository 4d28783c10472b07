package nvdriver

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

func TestCallFailsNTimes(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	gi := makeGI(t, d, "1g.5gb", 0)
	info := fullCompute(t, gi)
	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{
		{Call: "CreateComputeInstance", GPU: pciOf(d), Error: Return(nvml.ERROR_INSUFFICIENT_RESOURCES), Times: 2},
	}}))
	assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, second(gi.CreateComputeInstance(&info)))
	// The count outlives the process.
	gi, ret := handleOf(t, machineIn(t, "a100-40x8", n.root), 0).GetGpuInstanceById(7)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, second(gi.CreateComputeInstance(&info)))
	ci, ret := gi.CreateComputeInstance(&info)
	assert.Equal(t, nvml.SUCCESS, ret)

	other := makeGI(t, handleOf(t, n, 1), "1g.5gb", 0)
	makeCI(t, other)

	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{
		{Call: "ComputeInstanceDestroy", GPU: "*", Error: Return(nvml.ERROR_IN_USE), Times: 1},
		{Call: "ComputeInstanceDestroy", GPU: "*", Error: Return(nvml.ERROR_UNKNOWN), Times: 1},
	}}))
	assert.Equal(t, nvml.ERROR_IN_USE, ci.Destroy())
	assert.Equal(t, nvml.ERROR_UNKNOWN, ci.Destroy(), "the next entry, once the first is used up")
	assert.Equal(t, nvml.SUCCESS, ci.Destroy())
}

func TestFaultWithoutTimesStaysUntilRemoved(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	require.NoError(t, os.WriteFile(filepath.Join(n.root, "faults.yaml"), []byte(`
calls:
- {call: GetMigMode, gpu: "*", error: GPU_IS_LOST}
- {call: CreateGpuInstance, gpu: "0000:07:00.0", error: 19}
`), 0o600))
	for range 3 {
		_, _, ret := d.GetMigMode()
		assert.Equal(t, nvml.ERROR_GPU_IS_LOST, ret)
		_, ret = tryGI(t, d, "1g.5gb", 0)
		assert.Equal(t, nvml.ERROR_IN_USE, ret)
	}
	require.NoError(t, os.Remove(filepath.Join(n.root, "faults.yaml")))
	assert.Equal(t, [2]int{1, 1}, modes(t, d))
}

func TestDelayAndHang(t *testing.T) {
	root := memory.TempDir(t)
	inv, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	delays := make(chan time.Duration, 2)
	n, err := New(inv, Options{Root: root, Sleep: func(d time.Duration) { delays <- d }})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, n.Init())
	d := handleOf(t, n, 0)
	require.NoError(t, SetFaults(root, Faults{Calls: []CallFault{{Call: "GetUUID", GPU: "*", Delay: metav1.Duration{Duration: time.Hour}}}}))
	_, ret := d.GetUUID()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, time.Hour, <-delays)

	hang := CallFault{Call: "SetMigMode", GPU: pciOf(d), Delay: metav1.Duration{Duration: time.Minute}, Hang: true, Error: Return(nvml.ERROR_TIMEOUT)}
	require.NoError(t, SetFaults(root, Faults{Calls: []CallFault{hang}}))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
		assert.Equal(t, nvml.ERROR_TIMEOUT, ret)
	})
	assert.Equal(t, time.Minute, <-delays, "the call has met its fault")
	assert.Equal(t, [2]int{1, 1}, modes(t, d), "reading goes on")
	_, ret = handleOf(t, n, 1).SetMigMode(nvml.DEVICE_MIG_ENABLE)
	assert.Equal(t, nvml.SUCCESS, ret, "so do the other GPUs")
	require.NoError(t, SetFaults(root, Faults{}))
	wg.Wait()
}

func TestLostGPU(t *testing.T) {
	n := machine(t, "a100-40x8")
	d := handleOf(t, n, 2)
	gi := makeGI(t, d, "1g.5gb", 0)
	makeCI(t, gi)
	m, _ := d.GetMigDeviceHandleByIndex(0)
	require.NoError(t, SetFaults(n.root, Faults{Lost: []string{pciOf(d)}}))
	_, _, modeRet := d.GetMigMode()
	for what, ret := range map[string]nvml.Return{
		"handle": second(n.DeviceGetHandleByIndex(2)), "name": second(d.GetName()), "mig": second(m.GetUUID()),
		"destroy": gi.Destroy(), "create": second(tryCreate(d)),
	} {
		assert.Equal(t, nvml.ERROR_GPU_IS_LOST, ret, what)
	}
	assert.Equal(t, nvml.ERROR_UNKNOWN, modeRet, "nvml.h documents no ERROR_GPU_IS_LOST for the mode")
	count, _ := n.DeviceGetCount()
	assert.Equal(t, 8, count)
	assert.Equal(t, [2]int{1, 1}, modes(t, handleOf(t, n, 3)))
	require.NoError(t, SetFaults(n.root, Faults{}))
	assert.Equal(t, nvml.SUCCESS, second(gi.GetInfo()), "back as it was")
}

func tryCreate(d nvml.Device) (nvml.GpuInstance, nvml.Return) {
	return d.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 19})
}

func TestInitFails(t *testing.T) {
	n := machine(t, "l4x4")
	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{{Call: "Init", GPU: "*", Error: Return(nvml.ERROR_DRIVER_NOT_LOADED), Times: 1}}}))
	assert.Equal(t, nvml.ERROR_DRIVER_NOT_LOADED, n.Init())
	assert.Equal(t, nvml.SUCCESS, n.Init())
}

func TestBrokenFaultsNameTheKey(t *testing.T) {
	for yaml, want := range map[string]string{
		"calls: [{call: Destroy, gpu: '*', error: 1}]":                `calls[0].call: unknown call "Destroy": choose *, or one of ComputeInstanceDestroy,`,
		"calls: [{call: Init, gpu: gpu0, error: 1}]":                  `calls[0].gpu: "gpu0" is neither * nor an address`,
		"calls: [{call: Init, error: 1}]":                             `calls[0].gpu: "" is neither`,
		"calls: [{call: Init, gpu: '*', error: BROKEN}]":              "is not an NVML error like ERROR_IN_USE",
		"xids: [{gpu: '0000:07:00.0', computeInstance: 1, xid: 94}]":  "xids[0].computeInstance: 1 needs its gpuInstance",
		"calls: [{call: Init, gpu: '*', error: 1, times: -1}]":        "calls[0].times: -1 is negative",
		"calls: [{call: Init, gpu: '*', delay: -1s}]":                 "calls[0].delay: -1s is negative",
		"calls: [{call: Init, gpu: '*'}]":                             "calls[0]: does nothing",
		"calls: [{call: Init, gpu: '*', error: 1, time: 2}]":          `unknown field "time"`,
		"processes: [{gpu: x, pid: 1}]":                               `processes[0].gpu: "x"`,
		"processes: [{gpu: '0000:07:00.0', pid: 0}]":                  "processes[0].pid: 0",
		"processes: [{gpu: '0000:07:00.0', pid: 1, gpuInstance: -1}]": "processes[0].gpuInstance: -1",
		"resets: [{gpu: gpu0, refused: true}]":                        `resets[0].gpu: "gpu0" is neither * nor an address`,
		"resets: [{gpu: '*'}]":                                        "resets[0].does nothing",
		"lost: [gpu0]":                                                `lost[0]: "gpu0"`,
		"lost: {":                                                     "not valid faults",
	} {
		_, err := ParseFaults([]byte(yaml))
		assert.ErrorContains(t, err, want, yaml)
	}
	assert.Error(t, SetFaults(memory.TempDir(t), Faults{Lost: []string{"x"}}))
}

func TestHalfWrittenFaultsChangeNothing(t *testing.T) {
	n := machine(t, "a100-40x8")
	logged := 0
	n.faults.Report = func(error) { logged++ }
	d := handleOf(t, n, 0)
	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{{Call: "GetUUID", GPU: "*", Error: Return(nvml.ERROR_UNKNOWN)}}}))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(d.GetUUID()))
	require.NoError(t, os.WriteFile(filepath.Join(n.root, "faults.yaml"), []byte("calls: [{"), 0o600))
	for range 3 {
		assert.Equal(t, nvml.ERROR_UNKNOWN, second(d.GetUUID()))
	}
	assert.Equal(t, 1, logged, "once a file, not once a call")
}

func TestErrorsByNameAndNumber(t *testing.T) {
	for text, want := range map[string]nvml.Return{
		`"ERROR_IN_USE"`: nvml.ERROR_IN_USE, `"IN_USE"`: nvml.ERROR_IN_USE, `19`: nvml.ERROR_IN_USE, `"19"`: nvml.ERROR_IN_USE,
		`"ERROR_UNKNOWN"`: nvml.ERROR_UNKNOWN, `999`: nvml.ERROR_UNKNOWN,
	} {
		var r Return
		require.NoError(t, r.UnmarshalJSON([]byte(text)), text)
		assert.Equal(t, want, nvml.Return(r), text)
	}
	for _, text := range []string{`"SUCCESS"`, `-1`, `1000`, `""`, `null`} {
		var r Return
		assert.Error(t, r.UnmarshalJSON([]byte(text)), text)
	}
}

// A library can fail as a whole.
func TestFaultOfEveryCall(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	require.NoError(t, SetFaults(n.root, Faults{Calls: []CallFault{{Call: "*", GPU: "*", Error: Return(nvml.ERROR_UNKNOWN)}}}))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(n.DeviceGetCount()))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(n.DeviceGetHandleByIndex(0)))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(n.EventSetCreate()))
	assert.Equal(t, nvml.ERROR_UNKNOWN, second(d.GetUUID()))
	require.NoError(t, SetFaults(n.root, Faults{}))
	assert.Equal(t, nvml.SUCCESS, second(n.DeviceGetCount()))
}

// A process that NVML does not list keeps the GPU in use.
func TestUnlistedProcess(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	require.NoError(t, SetFaults(n.root, Faults{Processes: []Process{{GPU: pciOf(d), PID: 77, Unlisted: true}}}))
	listed, ret := d.GetComputeRunningProcesses()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Empty(t, listed)
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.ERROR_IN_USE}, setMIG(d, nvml.DEVICE_MIG_ENABLE))
}
