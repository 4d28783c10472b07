package nvdriver

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

func TestStateSurvivesARestartOfTheProcess(t *testing.T) {
	root := memory.TempDir(t)
	d := handleOf(t, machineIn(t, "h100x8", root), 5)
	migOn(t, d)
	makeCI(t, makeGI(t, d, "2g.20gb", 2))
	first, _ := d.GetMigDeviceHandleByIndex(0)
	uuid, _ := first.GetUUID()

	again := handleOf(t, machineIn(t, "h100x8", root), 5)
	assert.Equal(t, [2]int{1, 1}, modes(t, again))
	m, ret := again.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	same, _ := m.GetUUID()
	assert.Equal(t, uuid, same)
	gi, ret := again.GetGpuInstanceById(4)
	require.Equal(t, nvml.SUCCESS, ret)
	ci, ret := gi.GetComputeInstanceById(0)
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.SUCCESS, ci.Destroy())
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(first.GetUUID()), "the first process sees it at its next call")
}

// TestTwoLibrariesShareAGPU: of calls at once for the same placement exactly
// one wins, and no change of another GPU is lost.
func TestTwoLibrariesShareAGPU(t *testing.T) {
	root := memory.TempDir(t)
	a, b := machineIn(t, "a100-40x8", root), machineIn(t, "a100-40x8", root)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[nvml.Return]int{}
	for i := range 8 {
		for _, n := range []*NVML{a, b} {
			wg.Go(func() {
				d := handleOf(t, n, i%4)
				info := nvml.GpuInstanceProfileInfo{Id: 19}
				_, ret := d.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(i / 4), Size: 1})
				mu.Lock()
				defer mu.Unlock()
				won[ret]++
			})
		}
	}
	wg.Wait()
	assert.Equal(t, map[nvml.Return]int{nvml.SUCCESS: 8, nvml.ERROR_INSUFFICIENT_RESOURCES: 8}, won)
	for i := range 4 {
		info := profileInfo(t, handleOf(t, a, i), "1g.5gb")
		list, ret := handleOf(t, a, i).GetGpuInstances(&info)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Len(t, list, 2)
	}
}

// TestTwoProcessesShareARoot runs this test binary a second time on the same
// root: what one creates the other sees.
func TestTwoProcessesShareARoot(t *testing.T) {
	const variable = "SIMULATE_TEST_ROOT"
	if root := os.Getenv(variable); root != "" {
		d := handleOf(t, machineIn(t, "a100-40x8", root), 0)
		for start := range uint32(7) {
			_, ret := tryGI(t, d, "1g.5gb", start)
			require.Contains(t, []nvml.Return{nvml.SUCCESS, nvml.ERROR_INSUFFICIENT_RESOURCES}, ret)
		}
		return
	}
	root := memory.TempDir(t)
	n := machineIn(t, "a100-40x8", root)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTwoProcessesShareARoot$")
			cmd.Env = append(os.Environ(), variable+"="+root)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
	wg.Wait()
	d := handleOf(t, n, 0)
	info := profileInfo(t, d, "1g.5gb")
	list, ret := d.GetGpuInstances(&info)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Len(t, list, 7, "each placement once")
}

// TestChangesOfAGPUTakeTurns: two creations on one GPU take the time of two,
// on two GPUs the time of one. The sleep is a fake that counts who is in it.
func TestChangesOfAGPUTakeTurns(t *testing.T) {
	inv, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	together := make(chan int, 16)
	var mu sync.Mutex
	inside := 0
	enough := make(chan struct{})
	var once sync.Once
	n, err := New(inv, Options{Root: memory.TempDir(t), Sleep: func(d time.Duration) {
		assert.Equal(t, 200*time.Millisecond, d)
		mu.Lock()
		inside++
		together <- inside
		if inside == 2 {
			once.Do(func() { close(enough) })
		}
		mu.Unlock()
		<-enough // both GPUs are in the call at once, or the test hangs
		mu.Lock()
		inside--
		mu.Unlock()
	}})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, n.Init())
	var wg sync.WaitGroup
	for i := range 2 {
		for start := range uint32(2) {
			wg.Go(func() {
				info := nvml.GpuInstanceProfileInfo{Id: 19}
				_, ret := handleOf(t, n, i).CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: start, Size: 1})
				assert.Equal(t, nvml.SUCCESS, ret)
			})
		}
	}
	wg.Wait()
	close(together)
	for n := range together {
		assert.LessOrEqual(t, n, 2, "at most one call in each GPU")
	}
}

func TestDelaysAreTheInventorys(t *testing.T) {
	inv, err := models.ParseInventory([]byte(`gpus: [{model: H100-80GB}]
delays: {setMigMode: 1ms, createGPUInstance: 2ms, createComputeInstance: 3ms, destroyComputeInstance: 4ms, destroyGPUInstance: 5ms}`))
	require.NoError(t, err)
	var slept []time.Duration
	n, err := New(inv, Options{Root: memory.TempDir(t), Sleep: func(d time.Duration) { slept = append(slept, d) }})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, n.Init())
	d := handleOf(t, n, 0)
	migOn(t, d)
	gi := makeGI(t, d, "1g.10gb", 0)
	ci := makeCI(t, gi)
	assert.Equal(t, nvml.ERROR_IN_USE, gi.Destroy(), "a refusal takes no time")
	ci.Destroy()
	gi.Destroy()
	assert.Equal(t, []time.Duration{1e6, 2e6, 3e6, 4e6, 5e6}, slept)
}

// TestKilledDuringACall: the driver finishes what a killed process asked for.
func TestKilledDuringACall(t *testing.T) {
	root := memory.TempDir(t)
	inv, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	n, err := New(inv, Options{Root: root, Sleep: func(time.Duration) { panic("killed") }})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, n.Init())
	assert.PanicsWithValue(t, "killed", func() { makeGI(t, handleOf(t, n, 0), "1g.5gb", 0) })
	d := handleOf(t, machineIn(t, "a100-40x8", root), 0)
	assert.Equal(t, nvml.SUCCESS, second(d.GetGpuInstanceById(7)))
	makeGI(t, d, "1g.5gb", 1)
}

func TestBrokenState(t *testing.T) {
	n := machine(t, "a100-40x8")
	inv, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	path := filepath.Join(n.root, "state.json")
	for content, want := range map[string]string{
		"{":               "remove the file to start afresh",
		`{"version": 99}`: "version 99, this program reads 1",
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err = New(inv, Options{Root: n.root})
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, path)
		d := n.devices[0]
		_, _, ret := d.GetMigMode()
		assert.Equal(t, nvml.ERROR_UNKNOWN, ret, "an open library answers, and logs why")
		_, ret = d.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 19})
		assert.Equal(t, nvml.ERROR_UNKNOWN, ret)
	}
	require.NoError(t, os.Remove(path))
	machineIn(t, "a100-40x8", n.root)
	assert.Equal(t, [2]int{1, 1}, modes(t, handleOf(t, n, 0)))
}

func TestStateFileIsReadable(t *testing.T) {
	root := memory.TempDir(t)
	d := handleOf(t, machineIn(t, "a100-40x8", root), 0)
	makeCI(t, makeGI(t, d, "1g.5gb", 3))
	data, err := os.ReadFile(filepath.Join(root, "state.json"))
	require.NoError(t, err)
	var st nvstate.State
	require.NoError(t, json.Unmarshal(data, &st))
	assert.Equal(t, []nvstate.GPUInstance{{ID: 10, Profile: 19, Start: 3, Serial: 1, Compute: []nvstate.ComputeInstance{{Size: 1, Serial: 2}}}}, st.GPUs[0].Instances)
	assert.True(t, strings.HasSuffix(string(data), "}\n"))
}
