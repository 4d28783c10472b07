package amdgpu

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

const second = "0000:26:00.0" // of mi300x8

func set(t *testing.T, k *Kernel, f Faults) {
	t.Helper()
	require.NoError(t, SetFaults(k.root, f))
}

func mode(t *testing.T, k *Kernel, pci string) string {
	t.Helper()
	return read(t, k, of(pci, "current_compute_partition"))
}

func TestWriteFailsNTimes(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EBUSY, unix.EINVAL, unix.EIO, unix.EPERM} {
		root := memory.TempDir(t)
		k := machineIn(t, "mi300x8", root)
		set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Error: Errno(errno), Times: 2}}})
		assert.ErrorIs(t, switchTo(k, first, "CPX"), errno)
		// The count outlives the process.
		k = machineIn(t, "mi300x8", root)
		assert.ErrorIs(t, switchTo(k, first, "CPX"), errno)
		assert.Equal(t, "SPX", mode(t, k, first))
		assert.NoError(t, switchTo(k, second, "CPX"), "the other GPUs are as ever")
		assert.NoError(t, switchTo(k, first, "CPX"))
		assert.Len(t, gpuNodes(t, k, first), 8)
	}
}

func TestFaultsTakeTurns(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Writes: []WriteFault{
		{GPU: "*", File: "current_compute_partition", Error: Errno(unix.EBUSY), Times: 1},
		{GPU: "*", File: "current_compute_partition", Error: Errno(unix.EINVAL), Times: 1},
	}})
	assert.ErrorIs(t, switchTo(k, first, "CPX"), unix.EBUSY)
	assert.ErrorIs(t, switchTo(k, second, "CPX"), unix.EINVAL, "the next entry, once the first is used up")
	assert.NoError(t, switchTo(k, first, "CPX"))
}

// A failed switch leaves the GPU without KFD until one succeeds, or until the
// driver is reloaded.
func TestEIOLeavesNoKFD(t *testing.T) {
	k := machine(t, "mi300x8")
	for name, cure := range map[string]func() error{
		"the same mode": func() error { return switchTo(k, first, "SPX") },
		"another mode":  func() error { return switchTo(k, first, "DPX") },
		"a reload":      func() error { return ReloadDriver(k.root) },
		"a reboot":      func() error { return Reboot(k.root) },
	} {
		require.NoError(t, switchTo(k, first, "SPX"))
		set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Error: Errno(unix.EIO), Times: 1}}})
		generation := read(t, k, "/sys/class/kfd/kfd/topology/generation_id")
		require.ErrorIs(t, switchTo(k, first, "CPX"), unix.EIO, name)
		assert.Empty(t, gpuNodes(t, k, first), name)
		assert.NotEqual(t, generation, read(t, k, "/sys/class/kfd/kfd/topology/generation_id"), name)
		assert.Equal(t, "SPX", mode(t, k, first), name)
		require.NoError(t, cure(), name)
		assert.NotEmpty(t, gpuNodes(t, k, first), name)
		set(t, k, Faults{})
	}
}

func TestWriteThatChangesNothing(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Ignored: true, Times: 1}}})
	require.NoError(t, switchTo(k, first, "CPX"))
	assert.Equal(t, "SPX", mode(t, k, first))
	require.NoError(t, switchTo(k, first, "CPX"))
	assert.Equal(t, "CPX", mode(t, k, first))
}

func TestHangingWrite(t *testing.T) {
	for when, during := range map[string]string{"before": "SPX", "after": "CPX"} {
		root := memory.TempDir(t)
		k, other := machineIn(t, "mi300x8", root), machineIn(t, "mi300x8", root)
		set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Hang: when, Times: 1}}})
		done := make(chan error)
		go func() { done <- switchTo(k, first, "CPX") }()
		require.Eventually(t, func() bool { // the write has begun
			st, err := k.store.Read()
			return err == nil && len(st.FaultCounts) == 1 && st.FaultCounts[0] == 1
		}, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return mode(t, other, first) == during }, time.Minute, time.Millisecond, when)
		require.NoError(t, switchTo(other, second, "CPX"), "the other GPUs go on")
		select {
		case err := <-done:
			require.Fail(t, "it did not hang", "%v", err)
		default:
		}
		set(t, k, Faults{})
		require.NoError(t, <-done)
		assert.Equal(t, "CPX", mode(t, k, first), "%s: the switch is done in the end", when)
	}
}

func TestDelayedWrite(t *testing.T) {
	inv, err := models.LoadInventory("mi300x8")
	require.NoError(t, err)
	var slept time.Duration
	k, err := New(inv, Options{Root: memory.TempDir(t), Sleep: func(d time.Duration) { slept += d }})
	require.NoError(t, err)
	set(t, k, Faults{Writes: []WriteFault{{GPU: first, File: "current_compute_partition", Delay: metav1.Duration{Duration: time.Hour}}}})
	require.NoError(t, switchTo(k, first, "CPX"))
	assert.Equal(t, time.Hour+inv.AMDDriver.Delays.SwitchMode, slept)
}

// A process takes the GPU between its user's look and the write.
func TestProcessBetweenCheckAndWrite(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Writes: []WriteFault{{
		GPU: first, File: "current_compute_partition", Times: 1, Process: &Process{PID: 99, Name: "thief", GPUs: []string{first}},
	}}})
	assert.Empty(t, names(t, k, "/sys/class/kfd/kfd/proc"))
	require.ErrorIs(t, switchTo(k, first, "CPX"), unix.EBUSY)
	assert.Equal(t, []string{"99"}, names(t, k, "/sys/class/kfd/kfd/proc"))
	assert.Equal(t, "thief", read(t, k, "/proc/99/comm"))
	require.ErrorIs(t, switchTo(k, first, "CPX"), unix.EBUSY, "it stays")
	require.NoError(t, EndProcess(k.root, 99))
	assert.NoError(t, switchTo(k, first, "CPX"))
}

func TestForeignProcess(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Processes: []Process{{PID: 4242, Name: "rocm-smi", GPUs: []string{first}}}})
	assert.ErrorIs(t, switchTo(k, first, "CPX"), unix.EBUSY)
	assert.NoError(t, switchTo(k, second, "CPX"))
	assert.Equal(t, "rocm-smi", read(t, k, "/proc/4242/comm"))
	set(t, k, Faults{})
	_, err := k.Stat("/proc/4242")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoError(t, switchTo(k, first, "CPX"))
}

func TestMissingNodes(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "CPX"))
	generation := read(t, k, "/sys/class/kfd/kfd/topology/generation_id")
	set(t, k, Faults{Nodes: []NodeFault{
		{GPU: first, Partitions: []int{7}, Missing: "kfd"},
		{GPU: "*", Partitions: []int{1, 2}, Missing: "render"},
	}})
	assert.NotEqual(t, generation, read(t, k, "/sys/class/kfd/kfd/topology/generation_id"))
	nodes := gpuNodes(t, k, first)
	require.Len(t, nodes, 7)
	assert.EqualValues(t, 134, nodes[6].property["drm_render_minor"])
	for name, there := range map[string]bool{"128": true, "129": false, "130": false, "135": true, "137": false} {
		_, err := k.Stat("/dev/dri/renderD" + name)
		assert.Equal(t, there, err == nil, name)
	}
	set(t, k, Faults{Nodes: []NodeFault{{GPU: first, Missing: "kfd"}}})
	assert.Empty(t, gpuNodes(t, k, first), "none given: all of them")
	set(t, k, Faults{})
	assert.Len(t, gpuNodes(t, k, first), 8)
}

func TestLateRenderNodes(t *testing.T) {
	inv, err := models.LoadInventory("mi300x8")
	require.NoError(t, err)
	now := time.Unix(1_000_000, 0)
	sleep := func(d time.Duration) { now = now.Add(d) }
	k, err := New(inv, Options{Root: memory.TempDir(t), Sleep: sleep, Now: func() time.Time { return now }, Logf: t.Logf})
	require.NoError(t, err)
	set(t, k, Faults{Nodes: []NodeFault{{GPU: first, Missing: "render", Late: metav1.Duration{Duration: time.Minute}}}})
	require.NoError(t, switchTo(k, first, "DPX"))
	count := func() int { return len(names(t, k, "/dev/dri")) }
	assert.Len(t, gpuNodes(t, k, first), 2, "KFD is ahead of udev")
	assert.Equal(t, 127, count())
	_, err = k.Stat("/dev/dri/renderD129")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	sleep(time.Minute)
	assert.Equal(t, 128, count())
	_, err = k.Stat("/dev/dri/renderD129")
	assert.NoError(t, err)
}

// Without a Sleep of one's own the device nodes take as long as the inventory says.
func TestDelaysOfTheInventory(t *testing.T) {
	inv := parsed(t, "gpus: [{model: MI300X, pci: ['0000:05:00.0']}]\namd: {delays: {switchMode: 1ms, renderNodes: 1h}}")
	now := time.Now()
	k, err := New(inv, Options{Root: memory.TempDir(t), Now: func() time.Time { return now }})
	require.NoError(t, err)
	require.NoError(t, switchTo(k, first, "DPX"))
	_, err = k.Stat("/dev/dri/renderD129")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	now = now.Add(time.Hour + time.Millisecond)
	_, err = k.Stat("/dev/dri/renderD129")
	assert.NoError(t, err)
}

func TestGPUInReset(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{Resetting: []string{first}})
	assert.ErrorIs(t, switchTo(k, first, "CPX"), unix.EPERM)
	assert.ErrorIs(t, k.WriteFile(of(first, "current_memory_partition"), []byte("NPS4")), unix.EPERM)
	for _, name := range []string{"current_compute_partition", "current_memory_partition"} {
		_, err := k.ReadFile(of(first, name))
		assert.ErrorIs(t, err, unix.EPERM, name)
	}
	assert.NoError(t, switchTo(k, second, "CPX"))
	set(t, k, Faults{})
	assert.NoError(t, switchTo(k, first, "CPX"))
}

func TestLostGPU(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "CPX"))
	set(t, k, Faults{Lost: []string{first}})
	for _, name := range []string{of(first, ""), "/sys/bus/pci/drivers/amdgpu/" + first, "/dev/dri/renderD128", "/dev/dri/renderD135"} {
		_, err := k.Stat(name)
		assert.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	assert.ErrorIs(t, switchTo(k, first, "DPX"), fs.ErrNotExist)
	assert.Len(t, gpuNodes(t, k, ""), 7)
	assert.NoError(t, switchTo(k, second, "CPX"))
	set(t, k, Faults{})
	assert.Len(t, gpuNodes(t, k, first), 8, "back as it was")
}

func TestRASErrors(t *testing.T) {
	k := machine(t, "mi300x8")
	assert.Equal(t, "ue: 0\nce: 0\nde: 0", read(t, k, of(first, "ras/umc_err_count")))
	assert.Equal(t, "ue: 0\nce: 0", read(t, k, of(first, "ras/gfx_err_count")))
	set(t, k, Faults{RAS: []RAS{{GPU: first, Uncorrectable: 1}, {GPU: first, Uncorrectable: 1, Correctable: 3}, {GPU: first, Block: "gfx", Correctable: 2}}})
	assert.Equal(t, "ue: 2\nce: 3\nde: 0", read(t, k, of(first, "ras/umc_err_count")))
	assert.Equal(t, "ue: 0\nce: 2", read(t, k, of(first, "ras/gfx_err_count")))
	assert.Equal(t, "ue: 0\nce: 0\nde: 0", read(t, k, of(second, "ras/umc_err_count")))
	require.NoError(t, ReloadDriver(k.root))
	assert.Equal(t, "ue: 0\nce: 0\nde: 0", read(t, k, of(first, "ras/umc_err_count")), "counted from the load of the driver on")
}

func TestMemoryModeChangedBehindOurBack(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "QPX"))
	set(t, k, Faults{MemoryModes: []MemoryModeFault{{GPU: "*", Mode: xcp.NPS4}}})
	assert.Equal(t, "NPS4", read(t, k, of(first, "current_memory_partition")))
	assert.Equal(t, "QPX, CPX", read(t, k, of(first, "available_compute_partition")))
	assert.Equal(t, "QPX", mode(t, k, first), "goes with both")
	assert.Equal(t, "CPX", mode(t, k, second), "SPX does not")
	assert.Len(t, gpuNodes(t, k, second), 8)
	assert.ErrorIs(t, switchTo(k, first, "SPX"), unix.EINVAL)
	assert.NoError(t, switchTo(k, first, "CPX"))
	require.NoError(t, ReloadDriver(k.root))
	assert.Equal(t, "NPS4", read(t, k, of(first, "current_memory_partition")), "a load of the driver keeps it")
	require.NoError(t, Reboot(k.root))
	assert.Equal(t, "NPS1", read(t, k, of(first, "current_memory_partition")))
}

func TestRequestLostOnReload(t *testing.T) {
	k := machine(t, "mi300x8")
	set(t, k, Faults{MemoryModeLost: true})
	for range 2 {
		require.NoError(t, k.WriteFile(of(first, "current_memory_partition"), []byte("NPS4")))
		require.NoError(t, ReloadDriver(k.root))
		assert.Equal(t, "NPS1", read(t, k, of(first, "current_memory_partition")))
	}
	set(t, k, Faults{})
	require.NoError(t, ReloadDriver(k.root))
	assert.Equal(t, "NPS1", read(t, k, of(first, "current_memory_partition")), "and is forgotten")
}

// Both simulators read one file; setting the faults of one leaves the other's.
func TestFaultsOfOtherGPUsStay(t *testing.T) {
	k := machine(t, "mi300x8")
	path := filepath.Join(k.root, "faults.yaml")
	require.NoError(t, os.WriteFile(path, []byte("lost: ['0000:1b:00.0']\namd: {lost: ['0000:05:00.0']}\n"), 0o600))
	assert.Len(t, gpuNodes(t, k, ""), 7)
	set(t, k, Faults{Lost: []string{first, second}})
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.YAMLEq(t, "lost: ['0000:1b:00.0']\namd: {lost: ['0000:05:00.0', '0000:26:00.0']}\n", string(data))
	assert.Len(t, gpuNodes(t, k, ""), 6)
	require.NoError(t, os.Remove(path))
	assert.Len(t, gpuNodes(t, k, ""), 8)
}

func TestHalfWrittenFaultsChangeNothing(t *testing.T) {
	logged := 0
	inv, err := models.LoadInventory("mi300x8")
	require.NoError(t, err)
	k, err := New(inv, Options{Root: memory.TempDir(t), Logf: func(string, ...any) { logged++ }})
	require.NoError(t, err)
	set(t, k, Faults{Lost: []string{first}})
	assert.Len(t, gpuNodes(t, k, ""), 7)
	require.NoError(t, os.WriteFile(filepath.Join(k.root, "faults.yaml"), []byte("amd: {lost"), 0o600))
	assert.Len(t, gpuNodes(t, k, ""), 7)
	assert.Equal(t, 1, logged, "once a file, not once a call")
	assert.Error(t, SetFaults(k.root, Faults{}), "nor is a broken file overwritten")
}

func TestBrokenFaultsNameTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"writes: [{gpu: '*', file: vendor, error: EIO}]":                    `amd.writes[0].file: unknown file "vendor": choose one of current_compute_partition,`,
		"writes: [{gpu: gpu0, file: xcp_config, error: EIO}]":               `amd.writes[0].gpu: "gpu0" is neither * nor an address`,
		"writes: [{file: xcp_config, error: EIO}]":                          `amd.writes[0].gpu: "" is neither`,
		"writes: [{gpu: '*', file: xcp_config, error: ESRCH}]":              `error: "ESRCH" is none of EACCES,`,
		"writes: [{gpu: '*', file: xcp_config, error: 5}]":                  "error: 5 is none of",
		"writes: [{gpu: '*', file: xcp_config, error: EIO, times: -1}]":     "amd.writes[0].times: -1 is negative",
		"writes: [{gpu: '*', file: xcp_config, delay: -1s}]":                "amd.writes[0].delay: -1s is negative",
		"writes: [{gpu: '*', file: xcp_config, hang: now}]":                 `amd.writes[0].hang: "now" is neither before nor after`,
		"writes: [{gpu: '*', file: xcp_config, error: EIO, ignored: true}]": "amd.writes[0].ignored: a write that fails",
		"writes: [{gpu: '*', file: xcp_config}]":                            "amd.writes[0].error: it does nothing",
		"writes: [{gpu: '*', file: xcp_config, error: EIO, time: 2}]":       `unknown field "time"`,
		"writes: [{gpu: '*', file: xcp_config, process: {pid: 0}}]":         "amd.writes[0].process.pid: 0 is not",
		"processes: [{pid: 1, gpus: [x]}]":                                  `amd.processes[0].gpus[0]: "x"`,
		"processes: [{pid: 1, partition: -1}]":                              "amd.processes[0].partition: -1",
		"nodes: [{gpu: '*', missing: all}]":                                 `amd.nodes[0].missing: "all" is neither kfd nor render`,
		"nodes: [{gpu: x, missing: kfd}]":                                   `amd.nodes[0].gpu: "x"`,
		"nodes: [{gpu: '*', missing: kfd, partitions: [0, 8]}]":             "amd.nodes[0].partitions[1]: 8 is not between 0 and 7",
		"nodes: [{gpu: '*', missing: kfd, late: 1s}]":                       "amd.nodes[0].late: only what is missing as render",
		"nodes: [{gpu: '*', missing: render, late: -1s}]":                   "amd.nodes[0].late: -1s is negative",
		"resetting: [x]":    `amd.resetting[0]: "x"`,
		"lost: [x]":         `amd.lost[0]: "x"`,
		"ras: [{gpu: '*'}]": `amd.ras[0].gpu: "*"`,
		"ras: [{gpu: '0000:05:00.0', block: hbm}]":        `amd.ras[0].block: unknown block "hbm": choose one of umc,`,
		"ras: [{gpu: '0000:05:00.0', uncorrectable: -1}]": "amd.ras[0].uncorrectable: -1",
		"ras: [{gpu: '0000:05:00.0', correctable: -1}]":   "amd.ras[0].correctable: -1",
		"memoryModes: [{gpu: '*', mode: NPS3}]":           `amd.memoryModes[0].mode: unknown memory mode "NPS3": choose one of NPS1,`,
		"memoryModes: [{gpu: x, mode: NPS4}]":             `amd.memoryModes[0].gpu: "x"`,
		"lost: {":                                         "not valid faults",
		"calls: []":                                       `not valid faults: amd: error unmarshaling JSON: while decoding JSON: json: unknown field "calls"`,
	} {
		_, err := ParseFaults([]byte("amd:\n  " + text))
		assert.ErrorContains(t, err, want, text)
	}
	assert.ErrorContains(t, SetFaults(memory.TempDir(t), Faults{Lost: []string{"x"}}), `amd.lost[0]: "x"`)
}

func FuzzParseFaults(f *testing.F) {
	for _, text := range []string{
		"", "amd: {}", "lost: [x]", "amd: []", "amd: {lost: ['0000:05:00.0'], memoryModeLost: true}",
		"amd: {writes: [{gpu: '*', file: xcp_config, error: EBUSY, times: 3, delay: 1s, hang: after, process: {pid: 1}}]}",
		"amd: {nodes: [{gpu: '*', partitions: [7], missing: render, late: 1h}], ras: [{gpu: '0000:05:00.0', block: gfx}]}",
		"amd: {driver: [{step: load, missing: ['*'], times: 2, delay: 3s}, {step: unload, error: in use}], holders: [amdgpu_peer]}",
		"amd: {memoryModes: [{gpu: '*', mode: NPS4}], processes: [{pid: 7, gpus: ['0000:05:00.0'], partition: 2}]}",
	} {
		f.Add([]byte(text))
	}
	inv, err := models.LoadInventory("mi300x8")
	require.NoError(f, err)
	k, err := New(inv, Options{Root: f.TempDir(), Logf: func(string, ...any) {}})
	require.NoError(f, err)
	st, err := k.store.Read()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		faults, err := ParseFaults(data)
		if err != nil {
			assert.NotEmpty(t, err.Error())
			return
		}
		tree := k.view(st, faults).tree() // whatever is said makes a tree
		_, _, err = tree.resolve(kfdNodes)
		assert.NoError(t, err)
		again, err := yaml.Marshal(map[string]any{section: faults})
		require.NoError(t, err)
		written, err := ParseFaults(again)
		require.NoError(t, err, string(again))
		twice, err := yaml.Marshal(map[string]any{section: written})
		require.NoError(t, err)
		assert.Equal(t, string(again), string(twice))
	})
}
