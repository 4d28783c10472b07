package nvtools

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

const address = "0000:1b:00.0"

// pendingMachine has one GPU, whose MIG mode is on after the next reset.
func pendingMachine(t *testing.T) machine {
	t.Helper()
	m := newMachine(t)
	m.change(t, func(st *nvstate.State) {
		st.GPUs = []nvstate.GPU{{PCI: address, PendingMIGMode: true, Instances: []nvstate.GPUInstance{{ID: 7}}}}
	})
	return m
}

func (m machine) change(t *testing.T, f func(*nvstate.State)) {
	t.Helper()
	require.NoError(t, nvstate.Store(string(m)).Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			st = &nvstate.State{Version: nvstate.Version}
		}
		f(st)
		return st, nil
	}))
}

func (m machine) isOn(t *testing.T) bool {
	t.Helper()
	st, err := nvstate.Store(string(m)).Read()
	require.NoError(t, err)
	assert.Equal(t, st.GPUs[0].MIGMode, len(st.GPUs[0].Instances) == 0)
	return st.GPUs[0].MIGMode
}

func (m machine) faultsAre(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(m.faultsPath(), []byte(text), 0o600))
}

func TestGPUReset(t *testing.T) {
	for _, args := range []string{
		"--gpu-reset -i " + address, "-r -i " + uuid, "-i 00000000:1B:00.0 --gpu-reset", "-r --id=" + address, "--gpu-reset",
	} {
		m := pendingMachine(t)
		said, code := RunSMI(string(m), strings.Fields(args)...)
		assert.Zero(t, code, args)
		assert.Equal(t, "GPU 00000000:1B:00.0 was successfully reset.\nAll done.\n", string(said))
		assert.True(t, m.isOn(t), args)
	}
}

func TestGPUResetRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args, faults string
		code         int
		want         string
	}{
		"fault":       {"-r -i " + address, "resets: [{gpu: '*', refused: true}]", smiNotSupported, "Resetting GPU 00000000:1B:00.0 is not supported."},
		"process":     {"-r -i " + address, "processes: [{gpu: '0000:1b:00.0', pid: 7}]", 255, "In use by another client"},
		"lost":        {"-r -i " + address, "lost: ['0000:1b:00.0']", 15, "GPU is lost"},
		"unknown GPU": {"-r -i 0000:99:00.0", "", smiNoDevice, "No devices were found"},
		"option":      {"-r --force", "", smiInvalid, "--force"},
	} {
		t.Run(name, func(t *testing.T) {
			m := pendingMachine(t)
			m.faultsAre(t, test.faults)
			said, code := RunSMI(string(m), strings.Fields(test.args)...)
			assert.Equal(t, test.code, code)
			assert.Contains(t, string(said), test.want)
			assert.False(t, m.isOn(t))
		})
	}
}

func TestGPUResetBesideASessionOfNVML(t *testing.T) {
	m := pendingMachine(t)
	session := flock.New(nvstate.SessionLock(string(m)))
	require.NoError(t, session.RLock())
	said, code := RunSMI(string(m), "--gpu-reset", "-i", address)
	assert.Equal(t, 255, code)
	assert.Contains(t, string(said), "In use by another client")
	session.Close()
	_, code = RunSMI(string(m), "--gpu-reset", "-i", address)
	assert.Zero(t, code)

	m = pendingMachine(t)
	m.change(t, func(st *nvstate.State) { st.Processes = []nvstate.Process{{GPU: address, PID: 7}} })
	_, code = RunSMI(string(m), "--gpu-reset", "-i", address)
	assert.Equal(t, 255, code)
	assert.False(t, m.isOn(t))
}

func TestGPUResetThatHangs(t *testing.T) {
	m := pendingMachine(t)
	m.faultsAre(t, "resets: [{gpu: '*', refused: true, times: 1}, {gpu: '*', hang: true, times: 1}]")
	_, code := RunSMI(string(m), "-r")
	assert.Equal(t, smiNotSupported, code)
	var hanging sync.WaitGroup
	hanging.Go(func() {
		_, code := RunSMI(string(m), "-r")
		assert.Zero(t, code)
	})
	assert.Eventually(t, func() bool {
		st, err := nvstate.Store(string(m)).Read()
		return err == nil && st.FiredFaults["resets/1"] == 1
	}, time.Minute, hangPoll)
	assert.False(t, m.isOn(t))
	m.faultsAre(t, "")
	hanging.Wait()
	assert.True(t, m.isOn(t))
}

func TestGPUResetPutsRight(t *testing.T) {
	m := pendingMachine(t)
	m.faultsAre(t, "recovery: [{gpu: '0000:1b:00.0', action: reset}, {gpu: '0000:43:00.0', action: reset}]\ncalls: [{call: Init, gpu: '*', error: IN_USE}]\n")
	_, code := RunSMI(string(m), "-r", "-i", address)
	require.Zero(t, code)
	data, err := os.ReadFile(m.faultsPath())
	require.NoError(t, err)
	assert.NotContains(t, string(data), address)
	assert.Contains(t, string(data), "0000:43:00.0")
	assert.Contains(t, string(data), "IN_USE", "other faults stay")
}

func TestGPUResetWithoutMachine(t *testing.T) {
	said, code := RunSMI(string(newMachine(t)), "-r")
	assert.Equal(t, 1, code)
	assert.Contains(t, string(said), "no simulated machine")
}

func FuzzGPUReset(f *testing.F) {
	f.Add("-i\x000000:1b:00.0", "recovery: [{gpu: '0000:1b:00.0'}]")
	f.Add("--id=,", "recovery: {}")
	f.Add("-i", "- 1")
	f.Fuzz(func(t *testing.T, args, faults string) {
		if f := strings.ToLower(faults); strings.Contains(f, "delay") || strings.Contains(f, "hang") {
			t.Skip("it takes as long as it is told")
		}
		m := pendingMachine(t)
		m.faultsAre(t, faults)
		said, code := RunSMI(string(m), append(strings.Split(args, "\x00"), "--gpu-reset")...)
		assert.NotEmpty(t, said)
		assert.True(t, code != 0 || m.isOn(t), "success means that it was reset")
	})
}
