package partition_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

var errKilled = errors.New("killed")

// machine is a simulated machine with the plugin's drivers, its claims and what it
// follows.
type machine struct {
	hardware.Driver
	t        *testing.T
	root     string
	nvidia   *nvidia.Driver
	amd      *amd.Driver
	manager  *claim.Manager
	node     *partition.Node
	restarts func()

	// mu protects left, after which nothing that the plugin does has an effect.
	mu   sync.Mutex
	left int
	dead bool
}

// nvidiaMachine is a machine of NVIDIA's GPUs; extra is added to the inventory.
func nvidiaMachine(t *testing.T, model, extra string) *machine {
	t.Helper()
	m := newMachine(t)
	inv, err := models.LoadInventory(inventoryOf(t, model, extra))
	require.NoError(t, err)
	library, err := nvdriver.New(inv, nvdriver.Options{Root: m.root, Sleep: func(time.Duration) {}})
	require.NoError(t, err)
	m.restarts = func() {
		if m.nvidia != nil {
			require.NoError(t, m.nvidia.Close(context.Background()))
		}
		m.nvidia, err = nvidia.New(nvidia.Config{
			NVML: library, DriverRoot: filepath.Join(m.root, "driver"), ProcRoot: m.root, SysRoot: filepath.Join(m.root, "sys"),
			Run: func(_ context.Context, _ string, args ...string) ([]byte, error) {
				said, code := nvtools.RunSMI(m.root, args...)
				if code != 0 {
					return said, fmt.Errorf("exit status %d", code)
				}
				return said, nil
			},
		})
		require.NoError(t, err)
		require.NoError(t, m.nvidia.Open(t.Context()))
		m.Driver = m.nvidia
	}
	m.restart()
	t.Cleanup(func() { _ = m.nvidia.Close(context.Background()) })
	return m
}

// amdMachine is a machine with two GPUs of one of the simulator's inventories: what
// holds for two that change together holds for eight.
func amdMachine(t *testing.T, name string) *machine {
	t.Helper()
	m := newMachine(t)
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	inv.AMD = inv.AMD[:2]
	inv.AMDDriver.Delays = models.AMDDelays{}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: m.root, Seed: "node", Sleep: func(time.Duration) {}})
	require.NoError(t, err)
	module := &kmod.Module{
		Name: "amdgpu", Run: kernel.Modprobe, ReadFile: kernel.ReadFile, Marker: filepath.Join(t.TempDir(), "out"),
		UnloadPatience: 10 * time.Second, LoadPatience: 20 * time.Second, LookPause: 5 * time.Millisecond,
	}
	m.restarts = func() {
		m.amd, err = amd.New(amd.Config{
			Files: kernel, HostDevRoot: m.root, BusyPatience: 300 * time.Millisecond, ReloadPatience: 30 * time.Second, Reload: module.Reload,
		})
		require.NoError(t, err)
		require.NoError(t, m.amd.Open(t.Context()))
		m.Driver = m.amd
	}
	m.restart()
	return m
}

func inventoryOf(t *testing.T, model, extra string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inventory.yaml")
	text := "driverVersion: \"580.159.04\"\ngpus:\n- model: " + model + "\n  count: 2\n  pci: [\"0000:1b:00.0\", \"0000:43:00.0\"]\n" + extra
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, root: memory.TempDir(t), left: -1}
}

// restart is a new process of the plugin.
func (m *machine) restart() {
	m.t.Helper()
	m.restarts()
	m.dead, m.left = false, -1
	records, broken, err := ledger.Open(filepath.Join(m.root, "claims"))
	require.NoError(m.t, err)
	require.Empty(m.t, broken)
	files, err := cdi.Open(filepath.Join(m.root, "cdi"))
	require.NoError(m.t, err)
	state, err := partition.OpenState(filepath.Join(m.root, "profile.json"))
	require.NoError(m.t, err)
	m.manager = claim.NewManager(claim.Config{
		Node: "node-a", Driver: func(string) (hardware.Driver, error) { return m.Driver, nil }, Ledger: records, CDI: files, GPUs: m.gpus, Static: state.Static,
		LoadID: func(string) string { return m.load() }, LockDir: m.root,
	})
	m.node = partition.New(partition.Config{
		State: state, GPUs: m.gpus, Driver: func(string) (hardware.Driver, error) { return m, nil }, Claims: m.manager, MemoryModes: true, At: m.point,
	})
}

// point kills the plugin when its time has come.
func (m *machine) point(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		m.dead = true
	}
	if m.left > 0 {
		m.left--
	}
	if m.dead {
		return errKilled
	}
	return nil
}

func (m *machine) load() string {
	if m.nvidia != nil {
		id, err := m.nvidia.LoadID()
		require.NoError(m.t, err)
		return id
	}
	id, err := m.amd.LoadID()
	require.NoError(m.t, err)
	return id
}

func (m *machine) gpus() []gpu.GPU {
	gpus, err := m.Inventory(m.t.Context())
	require.NoError(m.t, err)
	return gpus
}

func (m *machine) SetMIG(ctx context.Context, gpuID string, on, leavePending bool) error {
	return errors.Join(m.Driver.SetMIG(ctx, gpuID, on, leavePending), m.point("after"))
}

func (m *machine) SetComputePartition(ctx context.Context, gpuID, mode string) error {
	return errors.Join(m.Driver.SetComputePartition(ctx, gpuID, mode), m.point("after"))
}

func (m *machine) SetMemoryPartition(ctx context.Context, mode string) error {
	return errors.Join(m.Driver.SetMemoryPartition(ctx, mode), m.point("after"))
}

func (m *machine) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	part, err := m.Driver.Create(ctx, p)
	return part, errors.Join(err, m.point("after"))
}

func (m *machine) Destroy(ctx context.Context, p gpu.Placement) error {
	return errors.Join(m.Driver.Destroy(ctx, p), m.point("after"))
}

// state is what the GPUs are like, in short.
func (m *machine) state() []string {
	m.t.Helper()
	var all []string
	for _, g := range m.gpus() {
		modes, err := m.Modes(m.t.Context(), g.PCIAddress)
		require.NoError(m.t, err)
		live, err := m.Live(m.t.Context(), g.PCIAddress)
		require.NoError(m.t, err)
		words := []string{string(modes.MIG), modes.Compute, modes.Memory}
		if modes.PendingMIG != modes.MIG {
			words = append(words, "pending", string(modes.PendingMIG))
		}
		var parts []string
		for _, p := range live {
			require.True(m.t, p.Complete)
			if p.Type == gpu.TypeMIG {
				parts = append(parts, p.Label())
			}
		}
		slices.Sort(parts)
		all = append(all, strings.Join(strings.Fields(strings.Join(append(words, parts...), " ")), " "))
	}
	return all
}

// nothingForeign checks that the Manager knows whose every partition is.
func (m *machine) nothingForeign() {
	m.t.Helper()
	for _, g := range m.gpus() {
		foreign, err := m.manager.Foreign(m.t.Context(), g.PCIAddress)
		require.NoError(m.t, err)
		require.Empty(m.t, foreign)
	}
}

func (m *machine) follow(w v1beta1.ProfileSnapshot) {
	m.t.Helper()
	require.Equal(m.t, v1beta1.Task{Phase: v1beta1.TaskDone}, m.node.Apply(m.t.Context(), w, false))
	m.follows(w)
}

func (m *machine) follows(w v1beta1.ProfileSnapshot) {
	m.t.Helper()
	task := m.node.Plan(m.t.Context(), w)
	require.Equal(m.t, v1beta1.TaskPlanned, task.Phase)
	require.Empty(m.t, task.Changes)
	require.Equal(m.t, w.Hash, m.node.Applied().Hash)
	m.nothingForeign()
}

func migWish(name string, mode v1beta1.MIGMode, parts ...v1beta1.StaticPartition) v1beta1.ProfileSnapshot {
	return ruleWish(name, v1beta1.Rule{MIG: &v1beta1.MIG{Mode: mode, Partitions: parts}})
}

func amdWish(name, compute, memory string) v1beta1.ProfileSnapshot {
	return ruleWish(name, v1beta1.Rule{XCP: &v1beta1.XCP{ComputePartition: compute, MemoryPartition: memory}})
}

func ruleWish(name string, rules ...v1beta1.Rule) v1beta1.ProfileSnapshot {
	w := profile.Snapshot(name, rules)
	w.Source = v1beta1.FromSpec
	return w
}

func part(profile string, count int32) v1beta1.StaticPartition {
	return v1beta1.StaticPartition{Profile: profile, Count: &count}
}

// claimFor is a claim that was given a placement.
func claimFor(uid string, p gpu.Placement) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: names.DriverName, Pool: names.PoolName("node-a"), Device: p.Name()}},
		}}},
	}
}
