package share_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/share"
)

func TestEdits(t *testing.T) {
	part := func(p string) []string { return []string{"GPU_PORTION=" + p, "RUNAI_NUM_OF_GPUS=" + p} }
	pipe := "CUDA_MPS_PIPE_DIRECTORY=/run/tranche/mps/pipe"
	half := gpu.Amount{Fraction: 500, Memory: 40 * gib}
	percent := func(n int64) gpu.Amount { return gpu.Amount{Memory: 2000 << 20, Compute: n} }
	mount := func(host, container string) *cdispecs.Mount {
		return &cdispecs.Mount{HostPath: host, ContainerPath: container, Type: "bind", Options: []string{"rw", "rbind", "nosuid", "nodev", "noexec"}}
	}
	for name, tt := range map[string]struct {
		devices []ledger.Device
		env     []string
		// from is the folder whose pipe and shm are mounted.
		from string
	}{
		"half, no limits":     {[]ledger.Device{device(0, plain, half)}, part("0.50"), ""},
		"memory, no limits":   {[]ledger.Device{device(0, plain, memory(20))}, part("0.25"), ""},
		"next to nothing":     {[]ledger.Device{device(0, plain, gpu.Amount{Memory: 1 << 20})}, part("0.01"), ""},
		"all of it":           {[]ledger.Device{device(0, plain, memory(80))}, part("1.00"), ""},
		"MIG":                 {[]ledger.Device{ofPartition(gpu.TypeMIG)}, part("0.25"), ""},
		"AMD":                 {[]ledger.Device{ofPartition(gpu.TypeXCP)}, part("0.25"), ""},
		"half, with limit":    {[]ledger.Device{device(0, limited, half)}, append(part("0.50"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M"), "/mps/uid-a"},
		"2000 MiB":            {[]ledger.Device{device(0, limited, percent(0))}, append(part("0.02"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M"), "/mps/uid-a"},
		"limit above request": {[]ledger.Device{limitedTo(40, device(0, limited, memory(20)))}, append(part("0.25"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M"), "/mps/uid-a"},
		"compute":             {[]ledger.Device{device(0, limited, percent(30))}, append(part("0.02"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"), "/mps/uid-a"},
		"the least":           {[]ledger.Device{device(0, limited, gpu.Amount{Memory: 1 << 20, Compute: 1})}, append(part("0.01"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1"), "/mps/uid-a"},
		"by MPS":              {[]ledger.Device{device(0, byMPS, percent(30))}, append(part("0.02"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"), "/mps/gpu-0000-01-00-0"},
		"two GPUs":            {[]ledger.Device{device(0, limited, half), device(1, limited, half)}, append(part("0.50"), pipe), "/mps/uid-a"},
		"two GPUs, compute":   {[]ledger.Device{device(0, limited, percent(30)), device(1, limited, percent(30))}, append(part("0.02"), pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"), "/mps/uid-a"},
		"two of one GPU":      {[]ledger.Device{device(0, limited, memory(20)), device(0, limited, memory(30))}, append(part("0.25"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=51200M"), "/mps/uid-a"},
		"limited and not":     {[]ledger.Device{device(0, limited, half), device(1, plain, half)}, append(part("0.50"), pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M"), "/mps/uid-a"},
		"not, beside limited": {[]ledger.Device{device(1, plain, half), device(0, limited, half)}, part("0.50"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newSharer()
			edits, err := s.Edits(t.Context(), holds(tt.devices...))
			require.NoError(t, err)
			want := &cdispecs.ContainerEdits{Env: tt.env}
			if tt.from != "" {
				want.Mounts = []*cdispecs.Mount{mount(tt.from+"/pipe", "/run/tranche/mps/pipe"), mount(tt.from+"/shm", "/dev/shm")}
			}
			assert.Equal(t, want, edits)
		})
	}
}

// Where the kernel driver limits memory, a hook asks for it, and there is no daemon.
func TestEditsByKernel(t *testing.T) {
	gpus, daemons := &fakeGPUs{}, newDaemons()
	s := share.New(share.Config{Driver: gpus.driver, Daemons: daemons.running, HookFolder: "/plugins/gpu.tranche.dev"})
	d := device(0, byKernel, memory(1))
	d.ShareID = "0123456789"
	require.NoError(t, s.Join(t.Context(), holds(d)))
	assert.Empty(t, daemons.specs)
	edits, err := s.Edits(t.Context(), holds(d))
	require.NoError(t, err)
	assert.Equal(t, []*cdispecs.Hook{{
		HookName: "createRuntime", Path: "/plugins/gpu.tranche.dev/tranche-hook", Timeout: new(20),
		Args: []string{"tranche-hook", "--dir=/plugins/gpu.tranche.dev", "--claim=uid-a", "--device=gpu-0000-01-00-0-memory-share-01234567"},
	}}, edits.Hooks)
	assert.Empty(t, edits.Mounts)
	assert.Equal(t, []string{"GPU_PORTION=0.01", "RUNAI_NUM_OF_GPUS=0.01"}, edits.Env)

	both := byMPS
	both.KernelLimits = true
	edits, err = s.Edits(t.Context(), holds(device(0, both, memory(1))))
	require.NoError(t, err)
	assert.Len(t, edits.Hooks, 1)
	assert.Len(t, edits.Mounts, 2, "and the limits of MPS")
}

// A limit that MPS would not take removes all limits: it is never written.
func TestEditsRefuse(t *testing.T) {
	s, _, _ := newSharer()
	for message, amount := range map[string]gpu.Amount{
		"claim team/a: a memory limit of 0 bytes on GPU gpu-0000-01-00-0 is less than the minimum of MPS (1 MiB)": {},
		"claim team/a: a memory limit of 1000 bytes on GPU gpu-0000-01-00-0":                                      {Memory: 1000},
		"claim team/a: a compute limit of 101 % on GPU gpu-0000-01-00-0 is not in the range of MPS (1 to 10":      {Memory: gib, Compute: 101},
		"claim team/a: a compute limit of -1 % on GPU gpu-0000-01-00-0":                                           {Memory: gib, Compute: -1},
	} {
		_, err := s.Edits(t.Context(), holds(device(0, limited, amount)))
		require.ErrorContains(t, err, message)
	}
}

func TestCheck(t *testing.T) {
	s, _, daemons := newSharer()
	record := func(uid string, state ledger.State, devices ...ledger.Device) ledger.Record {
		return ledger.Record{Claim: ledger.ClaimRef{UID: types.UID(uid), Namespace: "team", Name: uid}, State: state, Devices: devices}
	}
	dead, gone := device(0, byMPS, memory(1)), device(2, limited, memory(1))
	records := []ledger.Record{
		record("a", ledger.Prepared, dead), record("b", ledger.Prepared, dead, dead),
		record("c", ledger.Preparing, device(3, limited, memory(1))),
		record("d", ledger.Prepared, device(1, limited, memory(1)), device(2, limited, memory(1))),
		record("e", ledger.Prepared, gone), record("f", ledger.Prepared, device(3, plain, memory(1)), ofPartition(gpu.TypeMIG)),
		record("g", ledger.Prepared, device(3, limited, memory(1))),
	}
	daemons.statuses = map[string]mps.Status{"gpu-0000-01-00-0": {Err: errScripted}, "d": {Ready: true}, "g": {}, "stray": {Err: errScripted}}
	problems := s.Check(records)
	require.Len(t, problems, 2)
	assert.Equal(t, share.Problem{
		Daemon: "gpu-0000-01-00-0", Err: errScripted,
		Claims: []ledger.ClaimRef{records[0].Claim, records[1].Claim}, Devices: []ledger.Device{dead, dead, dead},
	}, problems[0])
	assert.Equal(t, "e", problems[1].Daemon)
	require.ErrorContains(t, problems[1].Err, "the MPS daemon does not exist any more")
	assert.Equal(t, []ledger.Device{gone}, problems[1].Devices)

	require.NoError(t, s.Stop(t.Context(), "stray"))
	assert.Equal(t, mps.Status{Gone: true}, daemons.Status("stray"))
	daemons.stopErr = errors.New("it hangs")
	require.EqualError(t, s.Stop(t.Context(), "d"), "it hangs")
}
