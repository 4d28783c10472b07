package nvtools

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSettings(t *testing.T) {
	s := newSettings()
	for _, step := range []struct{ line, want string }{
		{"get_default_active_thread_percentage", "100.0"},
		{"set_default_active_thread_percentage 25", "25.0"},
		{"get_default_active_thread_percentage", "25.0"},
		{"set_default_active_thread_percentage 0", "25.0"},
		{"set_default_active_thread_percentage 101", "25.0"},
		{"set_default_active_thread_percentage", "Invalid usage: set_default_active_thread_percentage <percentage>"},
		{"get_default_device_pinned_mem_limit 0", ""},
		{"set_default_device_pinned_mem_limit 0 3072M", ""},
		{"get_default_device_pinned_mem_limit 0", "3G"},
		{"set_default_device_pinned_mem_limit 1 1408M", ""},
		{"get_default_device_pinned_mem_limit 1", "1G"},
		{"get_default_device_pinned_mem_limit 0", "3G"},
		{"set_default_device_pinned_mem_limit 1 x", ""},
		{"get_default_device_pinned_mem_limit 1", ""},
		{"set_default_device_pinned_mem_limit 1 1500000K", ""},
		{"get_default_device_pinned_mem_limit 1", "1464G"},
		{"set_default_device_pinned_mem_limit 1 4095", ""},
		{"get_default_device_pinned_mem_limit 1", "3G"},
		{"set_default_device_pinned_mem_limit 1 1023M", ""},
		{"set_default_device_pinned_mem_limit 2 1G", ""},
		{"set_default_device_pinned_mem_limit -1 1G", `Invalid device "-1"`},
		{"get_default_device_pinned_mem_limit", "Invalid usage: get_default_device_pinned_mem_limit <dev>"},
		{"get_default_device_pinned_mem_limit 1", "1023M"},
		{"", ""},
	} {
		got, ok := s.answer(step.line)
		require.True(t, ok, step.line)
		assert.Equal(t, step.want, got, step.line)
	}
	_, ok := s.answer("get_server_list")
	assert.False(t, ok, "no command about settings")

	deaf := newSettings()
	deaf.ignore = true
	deaf.answer("set_default_device_pinned_mem_limit 7 3G")
	got, _ := deaf.answer("get_default_device_pinned_mem_limit 7")
	assert.Empty(t, got)
}

func FuzzSettings(f *testing.F) {
	f.Add("set_default_device_pinned_mem_limit 0 3G")
	f.Add("set_default_active_thread_percentage NaN")
	f.Fuzz(func(t *testing.T, line string) {
		s := newSettings()
		s.answer(line)
		assert.True(t, s.percentage > 0 && s.percentage <= 100)
		for ordinal, mib := range s.memory {
			assert.Zero(t, ordinal)
			assert.GreaterOrEqual(t, mib, int64(0))
		}
	})
}

func TestFaultsAreChecked(t *testing.T) {
	for _, start := range []string{"", startFails, startHangs} {
		assert.NoError(t, (&Faults{Start: start}).Check())
	}
	assert.ErrorContains(t, (&Faults{Start: "die"}).Check(), "start:")
	assert.ErrorContains(t, (&Faults{StartDelay: &metav1.Duration{Duration: -time.Second}}).Check(), "startDelay:")
}

const uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000"

func newMachine(t *testing.T) machine {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "proc/driver/nvidia/gpus/0000:1b:00.0")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "information"), []byte("Model: \t\t L4\nGPU UUID: \t "+uuid+"\n"), 0o600))
	return machine(root)
}

func TestComputePolicy(t *testing.T) {
	m := newMachine(t)
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := smi(m, append([]string{"compute-policy"}, args...), nil, streams{out: &out, err: &out})
		return code, out.String()
	}
	slice := func() string {
		name, err := TimeSlice(string(m), uuid)
		require.NoError(t, err)
		return name
	}
	assert.Equal(t, "DEFAULT", slice())
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-i", uuid, "--set-timeslice", "3"}, 0, "LONG"},
		{[]string{"-i", uuid, "--set-timeslice=1"}, 0, "SHORT"},
		{[]string{"-i", "0000:1b:00.0", "--set-timeslice", "2"}, 0, "MEDIUM"},
		{[]string{"-i", "GPU-other", "--set-timeslice", "3"}, smiNoDevice, "MEDIUM"},
		{[]string{"-i", uuid, "--set-timeslice", "4"}, smiInvalid, "MEDIUM"},
		{[]string{"-i", uuid}, smiInvalid, "MEDIUM"},
		{[]string{"--reset", uuid}, smiInvalid, "MEDIUM"},
	} {
		code, out := run(step.args...)
		assert.Equal(t, step.code, code, "%v: %s", step.args, out)
		assert.NotEmpty(t, out)
		assert.Equal(t, step.want, slice())
	}

	require.NoError(t, os.WriteFile(filepath.Join(string(m), "faults.yaml"), []byte("mps: {noTimeSlices: [\"*\"]}\n"), 0o600))
	code, out := run("-i", uuid, "--set-timeslice", "3")
	assert.Equal(t, smiNotSupported, code)
	assert.Contains(t, out, "Not Supported")

	require.NoError(t, ResetTimeSlices(string(m)))
	require.NoError(t, ResetTimeSlices(string(m)), "a second time")
	assert.Equal(t, "DEFAULT", slice())
}

func TestSMISaysWhatAContainerHas(t *testing.T) {
	var out bytes.Buffer
	code := smi("", nil, []string{"PATH=/bin", "TRANCHE_B=2", "CUDA_A=1"}, streams{out: &out, err: &out})
	assert.Zero(t, code)
	assert.Contains(t, out.String(), "NVIDIA-SMI")
	assert.Contains(t, out.String(), "(simulated)")
	assert.Contains(t, out.String(), "  CUDA_A=1\n  TRANCHE_B=2\n")
	assert.NotContains(t, out.String(), "PATH")
}

func TestUnknownProgram(t *testing.T) {
	assert.Equal(t, 2, Main([]string{"/usr/bin/simulated-nvidia-tools"}))
}

func TestMachineWithoutFaults(t *testing.T) {
	assert.Equal(t, Faults{}, machine("").faults())
	m := newMachine(t)
	assert.Equal(t, Faults{}, m.faults(), "no file")
	require.NoError(t, os.WriteFile(filepath.Join(string(m), "faults.yaml"), []byte("mps: [\n"), 0o600))
	assert.Equal(t, Faults{}, m.faults(), "a broken one")
	require.NoError(t, os.WriteFile(filepath.Join(string(m), "faults.yaml"), []byte("calls: []\nmps: {start: hang}\n"), 0o600))
	assert.Equal(t, Faults{Start: startHangs}, m.faults())
}
