package nvidia

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/report"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
)

// busy is a machine with something of everything.
func busy(t *testing.T) *machine {
	m := simulated(t, "mixed")
	m.create(m.placement("1g.10gb", 6))
	m.create(m.placement("3g.40gb", 0))
	m.bareInstance(m.placement("1g.20gb", 4))
	one := 0
	for _, p := range m.live(firstGPU) {
		if p.Profile == "3g.40gb" {
			one, _ = instanceID(p)
		}
	}
	m.faults(nvdriver.Faults{
		Processes: []nvdriver.Process{
			{GPU: firstGPU, GPUInstance: &one, PID: 4242, Name: "python"},
			{GPU: "0000:98:00.0", PID: 17, Name: "/usr/bin/tritonserver"},
		},
		Lost:     []string{secondGPU},
		Recovery: []nvdriver.Recovery{{GPU: "0000:52:00.0", Action: "reset"}},
	})
	return m
}

func TestReportText(t *testing.T) {
	m := busy(t)
	r, err := m.Report(t.Context())
	require.NoError(t, err)
	r.GPUs[0].Partitions[0].Note = "made by somebody else: " + m.RemovalCommand(m.live(firstGPU)[0])
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	text := regexp.MustCompile(`(GPU|MIG)-[0-9a-f-]{36}`).ReplaceAllString(b.String(), "$1-00000000-0000-0000-0000-000000000000")
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "nvidia-smi mig") {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
		}
	}
	path := filepath.Join("testdata", "report.txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test -update makes it")
	assert.Equal(t, string(want), text)
}

func TestReportJSON(t *testing.T) {
	r, err := busy(t).Report(t.Context())
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.WriteJSON(&b))
	var back report.Report
	require.NoError(t, json.Unmarshal([]byte(b.String()), &back))
	assert.Equal(t, len(r.GPUs), len(back.GPUs))
	assert.Equal(t, r, back)

	assert.Equal(t, "13.0", r.Drivers[0].CUDAVersion)
	require.Len(t, r.GPUs, 11)
	cut, lost, sick, l4 := r.GPUs[0], r.GPUs[2], r.GPUs[3], r.GPUs[7]
	assert.Equal(t, &report.Switch{On: true, Pending: true}, cut.MIG)
	assert.Nil(t, cut.Utilization, "not told in MIG mode")
	require.Len(t, cut.Partitions, 3)
	assert.Equal(t, "gpu-0000-1b-00-0-mig-3g-40gb-0", cut.Partitions[0].Name)
	assert.EqualValues(t, 512<<20, *cut.Partitions[0].Memory.Used)
	assert.Equal(t, "no compute instance", cut.Partitions[1].HalfMade)
	assert.Equal(t, cut.Partitions[0].ID, cut.Processes[0].Partition)
	assert.Empty(t, cut.Errors)
	assert.Equal(t, secondGPU, lost.PCIAddress)
	assert.Contains(t, lost.Unhealthy, nvml.ERROR_GPU_IS_LOST.Error())
	assert.Contains(t, sick.Unhealthy, "the driver asks for a reset")
	assert.NotEmpty(t, sick.UUID)
	assert.Nil(t, l4.MIG)
	assert.NotNil(t, l4.Utilization)
	assert.Empty(t, l4.Processes[0].Partition)
}

func TestReportNotesWhatItCannotRead(t *testing.T) {
	m := simulated(t, "l4x4")
	m.fail("GetComputeRunningProcesses", nvml.ERROR_NO_PERMISSION, 1)
	r, err := m.Report(t.Context())
	require.NoError(t, err)
	var errors []string
	for _, c := range r.GPUs {
		errors = append(errors, c.Errors...)
	}
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "DeviceGetComputeRunningProcesses")
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "  unread    GPU 0000:")
}

func TestReportFailsWithNVML(t *testing.T) {
	m := simulated(t, "l4x4")
	require.Equal(t, nvml.SUCCESS, m.nvml.Shutdown())
	m.fail("Init", nvml.ERROR_DRIVER_NOT_LOADED, 0)
	_, err := m.Report(t.Context())
	assert.ErrorIs(t, err, nvml.ERROR_DRIVER_NOT_LOADED)
}
