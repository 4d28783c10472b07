package hardware

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/allocator"
)

// sharedGPUsOf are the machine's GPUs with shares of each that can be had whole.
func sharedGPUsOf(t *testing.T, m *machine) []gpu.GPU {
	t.Helper()
	gpus := gpusOf(t, m)
	for i := range gpus {
		shares, err := profile.Default().ShareDevices(&gpus[i], true)
		require.NoError(t, err)
		gpus[i].Placements = append(slices.Clone(gpus[i].Placements), shares...)
	}
	return gpus
}

// checkShareDevices: shares pass the checks that other devices pass. The scheduler
// grants two of one GPU, and neither the GPU nor a part of it beside them.
func checkShareDevices(t *testing.T, m *machine) {
	gpus := sharedGPUsOf(t, m)
	all := published(t, gpus)
	validate(t, all)
	scheduler := schedulerOf(all)
	for _, g := range gpus {
		ask := func(p gpu.Placement) *allocator.Grant {
			request := allocator.Request("gpu", anyClass, 1)
			request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selects(&g, p)}}}
			grant, err := scheduler.Allocate(m.ctx(t), node, allocator.Claim("claim", request))
			require.NoError(t, err)
			return grant
		}
		for _, p := range g.Placements {
			if p.Share == nil {
				continue
			}
			assert.Equal(t, p.Base().Consumes, p.Consumes, p.Name())
			assert.NotNil(t, ask(p), "a share of %s on an idle machine", g.Name())
			second := ask(p)
			require.NotNil(t, second, "a second one of %s", g.Name())
			assert.Equal(t, []string{p.Name()}, second.Devices())
			for _, other := range slices.CompactFunc(slices.Clone(g.Placements), func(a, b gpu.Placement) bool { return a.Profile == b.Profile }) {
				if other.Share == nil {
					assert.Nil(t, ask(other), "%s beside shares of the GPU", other.Name())
				}
			}
			scheduler.ReleaseAll()
		}
	}
}

// checkShareEdits: a share of each GPU without partitions can be described in a file
// that the runtime reads, with what containers read of its size.
func checkShareEdits(t *testing.T, m *machine) {
	if !m.hasNodes {
		t.Skip("no device nodes can be made here: the test needs root")
	}
	folder, err := cdi.Open(t.TempDir())
	require.NoError(t, err)
	common, err := m.CommonEdits(m.ctx(t), nil)
	require.NoError(t, err)
	sharer := share.New(share.Config{})
	tried := 0
	for _, g := range gpusOf(t, m) {
		if !isWhole(t, m, &g) {
			continue
		}
		tried++
		h := holderOf(t, &g, "claim-a", gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 2, MaxClients: 2}, gpu.Amount{Memory: limitA, Clients: 1})
		require.NoError(t, sharer.Join(m.ctx(t), h))
		base, err := m.Edits(m.ctx(t), h.Device.Placement.Base())
		require.NoError(t, err)
		checkEdits(t, m, base)
		edits, err := sharer.Edits(m.ctx(t), h)
		require.NoError(t, err)
		assert.Empty(t, edits.Mounts, "no daemon serves it")
		assert.True(t, slices.ContainsFunc(edits.Env, func(v string) bool { return strings.HasPrefix(v, "GPU_PORTION=0.") }), edits.Env)
		both := &cdispecs.ContainerEdits{DeviceNodes: base.DeviceNodes, Mounts: base.Mounts, Hooks: base.Hooks, Env: append(slices.Clone(base.Env), edits.Env...)}
		require.NoError(t, folder.Write(h.Claim.UID, []byte("{}"), common, []cdi.Device{{Name: h.Device.Key(), Edits: both}}))
		require.NoError(t, sharer.Leave(m.ctx(t), h))
	}
	if tried == 0 {
		t.Skip("every GPU has partitions, or is in MIG mode: there is no share of a whole one")
	}
}

// isWhole reports whether programs can use the GPU as a whole now.
func isWhole(t *testing.T, m *machine, g *gpu.GPU) bool {
	t.Helper()
	if _, ok := g.Placement(g.Name()); !ok {
		return false
	}
	now := stateOf(t, m)[g.Name()]
	return now.Modes.MIG != gpu.MIGOn && len(now.Partitions) == 0
}

// holderOf is a claim with a share of a GPU by memory.
func holderOf(t *testing.T, g *gpu.GPU, name string, s gpu.Sharing, amount gpu.Amount, others ...ledger.Device) claim.Holder {
	t.Helper()
	base, ok := g.Placement(g.Name())
	require.True(t, ok)
	p := gpu.ShareOf(base, gpu.ByMemory, s)
	d := ledger.Device{
		Request: "gpu", Pool: names.PoolName(node), Name: p.Name(), Placement: p, UUID: g.UUID,
		ShareID: types.UID("share-of-" + name), Amount: &amount,
	}
	ref := ledger.ClaimRef{UID: types.UID(name), Namespace: "default", Name: name}
	return claim.Holder{Claim: ref, Device: d, Devices: []ledger.Device{d}, Others: others}
}

const (
	// limitA and limitB are what two claims have of a GPU, in bytes: not whole GiB, which
	// daemons answer otherwise. A CUDA context takes up to contextSize of it: 0.25 GiB on an
	// H100, about 0.4 GiB on an H200.
	limitA, limitB = 2000 << 20, 3500 << 20
	contextSize    = 512 << 20
	// computeA is how much of the multiprocessors the first has, in percent.
	computeA = 50
	// beyond is how much more than its limit a client tries to get.
	beyond = 2 << 30
	// room is how much memory of a GPU must be free: for both with all that they try
	// to get, contexts and servers.
	room = 12 << 30
)

// checkMPS: an MPS daemon of this driver starts, answers and ends.
func checkMPS(t *testing.T, m *machine) {
	supervisor := daemonsOf(t, m)
	require.NoError(t, supervisor.Probe(m.ctx(t)))
	nothingLeft(t, m)
}

// daemonsOf runs MPS daemons in a folder of the test's.
func daemonsOf(t *testing.T, m *machine) *mps.Supervisor {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start MPS daemons as the plugin does")
	}
	if !m.hasMPS {
		t.Skip("no nvidia-cuda-mps-control in the driver or on the host: shares have no limits here")
	}
	s := mps.New(mps.Config{Dir: m.mpsDir, DriverRoot: m.driverRoot})
	t.Cleanup(func() {
		ids, err := s.List()
		assert.NoError(t, err)
		for _, id := range ids {
			assert.NoError(t, s.Stop(m.ctx(t), id))
		}
	})
	return s
}

// nothingLeft: no daemon, and nothing of one.
func nothingLeft(t *testing.T, m *machine) {
	t.Helper()
	entries, err := os.ReadDir(m.mpsDir)
	require.NoError(t, err)
	assert.Empty(t, entries)
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environments {
		environment, _ := os.ReadFile(path) // some have ended
		assert.NotContains(t, string(environment), "CUDA_MPS_PIPE_DIRECTORY="+m.mpsDir, path)
	}
}

// freeGPU is one that programs can use as a whole, with room for the clients.
func freeGPU(t *testing.T, m *machine) gpu.GPU {
	t.Helper()
	for _, g := range gpusOf(t, m) {
		if !isWhole(t, m, &g) {
			continue // it has no compute mode while MIG is enabled
		}
		device, ret := m.nvml.DeviceGetHandleByPciBusId(g.PCIAddress)
		require.Equal(t, nvml.SUCCESS, ret)
		memory, ret := device.GetMemoryInfo()
		require.Equal(t, nvml.SUCCESS, ret)
		if memory.Free >= room && stateOf(t, m)[g.Name()].Settings.ComputeMode == gpu.ComputeDefault {
			return g
		}
	}
	t.Skipf("no GPU without MIG, in compute mode Default, with %d GiB free", room>>30)
	return gpu.GPU{}
}

// checkLimits: two claims share a GPU, each with a client at the same time. Each is
// kept to its memory, whatever its environment says beyond that, and to its part of
// the multiprocessors. Afterwards nothing is left.
func checkLimits(t *testing.T, m *machine) {
	for _, strategy := range []gpu.Strategy{gpu.TimeSlicing, gpu.MPS} {
		t.Run(string(strategy), func(t *testing.T) { checkLimitsBy(t, m, strategy) })
	}
}

func checkLimitsBy(t *testing.T, m *machine, strategy gpu.Strategy) {
	daemons, g := daemonsOf(t, m), freeGPU(t, m)
	if m.cuda == "" {
		t.Skip("no libcuda.so.1 beside NVML's library")
	}
	// Without GPUs to set there is no way to set them.
	sharer := share.New(share.Config{Daemons: func() share.Runner { return daemons }})
	sharing := gpu.Sharing{Strategy: strategy, Replicas: 2, MaxClients: 4, Limits: true}
	a := holderOf(t, &g, "claim-a", sharing, gpu.Amount{Memory: limitA, Compute: computeA, Clients: 1})
	b := holderOf(t, &g, "claim-b", sharing, gpu.Amount{Memory: limitB, Clients: 1}, a.Device)

	alone, end := startClient(t, m, order{Most: limitA + beyond}, "CUDA_VISIBLE_DEVICES="+g.UUID)
	assert.False(t, alone.Refused, "without a daemon nothing limits it; if this fails the GPU is too full, and what follows tells nothing")
	end()

	join(t, m, sharer, a)
	join(t, m, sharer, b)
	envA, shmA := environmentOf(t, m, sharer, a)
	envB, shmB := environmentOf(t, m, sharer, b)
	seenA, endA := startClient(t, m, order{Shm: shmA, Most: limitA + beyond}, envA...)
	seenB, endB := startClient(t, m, order{Shm: shmB, Most: limitB + beyond}, envB...)
	for _, c := range []struct {
		seen  sight
		limit int64
	}{{seenA, limitA}, {seenB, limitB}} {
		assert.Equal(t, 1, c.seen.Client.GPUs)
		assert.Equal(t, g.UUID, c.seen.Client.UUID)
		isKeptTo(t, c.seen, c.limit)
	}
	assert.Positive(t, seenA.Client.Multiprocessors)
	assert.LessOrEqual(t, seenA.Client.Multiprocessors, alone.Client.Multiprocessors*(computeA+5)/100)
	assert.Equal(t, alone.Client.Multiprocessors, seenB.Client.Multiprocessors, "it has no limit")
	endA()
	if strategy == gpu.TimeSlicing {
		// The daemon is the claim's, and has the limit, too.
		more, end := startClient(t, m, order{Shm: shmA, Most: limitA + beyond}, append(envA, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M")...)
		isKeptTo(t, more, limitA)
		end()
	}
	endB()
	a.Others, b.Others = []ledger.Device{b.Device}, nil
	require.NoError(t, sharer.Leave(m.ctx(t), a))
	require.NoError(t, sharer.Leave(m.ctx(t), b))
	nothingLeft(t, m)
}

// isKeptTo: a client got memory, and not more than its limit.
func isKeptTo(t *testing.T, seen sight, limit int64) {
	t.Helper()
	assert.True(t, seen.Refused, "nothing stopped it")
	assert.LessOrEqual(t, seen.Allocated, limit)
	assert.GreaterOrEqual(t, seen.Allocated, limit-contextSize-chunk)
}

// join gets a share ready as Prepare does.
func join(t *testing.T, m *machine, s *share.Sharer, h claim.Holder) {
	t.Helper()
	err := s.Join(m.ctx(t), h)
	var notReady *claim.NotReadyError
	if errors.As(err, &notReady) {
		require.NoError(t, notReady.Wait(m.ctx(t)))
		err = s.Join(m.ctx(t), h)
	}
	require.NoError(t, err)
}

// environmentOf is what a container of the claim gets, in the words of the host: the
// folder with the way to the daemon is not mounted, but named.
func environmentOf(t *testing.T, m *machine, s *share.Sharer, h claim.Holder) (env []string, shm string) {
	t.Helper()
	edits, err := s.Edits(m.ctx(t), h)
	require.NoError(t, err)
	require.Len(t, edits.Mounts, 2)
	for _, v := range edits.Env {
		if dir, ok := strings.CutPrefix(v, "CUDA_MPS_PIPE_DIRECTORY="); ok {
			pipe := slices.IndexFunc(edits.Mounts, func(m *cdispecs.Mount) bool { return m.ContainerPath == dir })
			require.NotEqual(t, -1, pipe, "nothing is mounted at %s", dir)
			v = "CUDA_MPS_PIPE_DIRECTORY=" + edits.Mounts[pipe].HostPath
		}
		env = append(env, v)
	}
	i := slices.IndexFunc(edits.Mounts, func(m *cdispecs.Mount) bool { return m.ContainerPath == "/dev/shm" })
	require.NotEqual(t, -1, i, "nothing is mounted at /dev/shm")
	return env, edits.Mounts[i].HostPath
}
