package telemetry

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// held is a prepared claim of a pod of the same name.
func held(namespace, name string, d ledger.Device) ledger.Record {
	return ledger.Record{
		Claim: ledger.ClaimRef{UID: types.UID("claim-" + name), Namespace: namespace, Name: name}, State: ledger.Prepared,
		Devices: []ledger.Device{d}, Pods: []ledger.Pod{{Name: name, UID: types.UID(name)}},
	}
}

// changing are values that differ from run to run.
var changing = regexp.MustCompile(`(?m)^(tranche_claim_operation_duration_seconds_(?:sum|bucket)\S*\{.*\}) .*$`)

// record measures twice, and compares what a plugin on these GPUs serves with what was recorded.
func record(t *testing.T, node string, gpus []gpu.GPU, read func(context.Context, string) (gpu.Usage, error), pods map[int]types.UID, records ...ledger.Record) {
	t.Helper()
	list := func() []ledger.Record { return records }
	s := NewSampler(SamplerConfig{
		Interval: time.Hour, GPUs: func() []gpu.GPU { return gpus }, Read: read, Records: list,
		PodOf: func(pid int) (types.UID, error) { return pods[pid], nil },
		Containers: func(context.Context) (Containers, error) {
			found := Containers{}
			for _, r := range records {
				found[Use{r.Claim.Namespace, r.Claim.Name, r.Claim.Name}] = []string{"main"}
			}
			return found, nil
		},
	})
	s.Measure(t.Context())
	s.Measure(t.Context())
	m := NewMetrics(node, list)
	m.Register(s)
	m.Register(HealthCollector(func() []Health {
		return lists.Map(gpus, func(g gpu.GPU) Health { return Health{GPU: g.Name()} })
	}))
	m.OfferedGPUs(gpus)
	var published []publish.GPU
	for _, g := range gpus {
		published = append(published, publish.GPU{GPU: g})
	}
	all, errs := publish.Slices(published)
	require.Empty(t, errs)
	m.PublishedDevices(all)
	m.Phase("prepare", "create", 250*time.Millisecond, nil)
	m.Operation("prepare", time.Now(), nil)
	m.Finding("ForeignPartition", nil)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text := changing.ReplaceAllString(answer.Body.String(), "$1 1")
	golden.Equal(t, filepath.Join("../../../test/promql/testdata", node+".txt"), text)
}

// inventoryOf writes an inventory of two GPUs.
func inventoryOf(t *testing.T, text string) *models.Inventory {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inventory.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	inventory, err := models.LoadInventory(file)
	require.NoError(t, err)
	return inventory
}

// The chart's queries are tested on these scrapes: partitions and shares of NVIDIA's GPUs.
func TestRecordedScrapeOfNVIDIA(t *testing.T) {
	inventory := inventoryOf(t, "driverVersion: \"580.159.04\"\ngpus:\n- {model: H100-80GB, count: 2, pci: [\"0000:1b:00.0\", \"0000:43:00.0\"]}\n")
	root := t.TempDir()
	library, err := nvdriver.New(inventory, nvdriver.Options{Root: root, Seed: "node-a", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: root, SysRoot: filepath.Join(root, "sys")})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	t.Cleanup(func() { _ = driver.Close(context.Background()) })
	gpus, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	require.NoError(t, driver.SetMIG(t.Context(), gpus[0].PCIAddress, true, false))
	var devices []ledger.Device
	for _, name := range []string{"mig-1g-10gb-0", "mig-3g-40gb-4"} {
		p, ok := gpus[0].Placement(gpus[0].Name() + "-" + name)
		require.True(t, ok, name)
		part, err := driver.Create(t.Context(), p)
		require.NoError(t, err)
		devices = append(devices, ledger.Device{Name: p.Name(), Placement: p, UUID: part.UUID})
	}
	whole, ok := gpus[1].Placement(gpus[1].Name())
	require.True(t, ok)
	share := func(id string, gib int64) ledger.Device {
		p := gpu.ShareOf(whole, gpu.ByMemory, gpu.Sharing{Strategy: gpu.TimeSlicing})
		return ledger.Device{Name: p.Name(), Placement: p, UUID: gpus[1].UUID, ShareID: types.UID(id), Amount: &gpu.Amount{Memory: gib << 30}}
	}
	require.NoError(t, nvdriver.SetFaults(root, nvdriver.Faults{
		Processes: []nvdriver.Process{
			{GPU: gpus[1].PCIAddress, PID: 11, Use: load.Use{Compute: 30, MemoryMiB: 4096}},
			{GPU: gpus[1].PCIAddress, PID: 12, Use: load.Use{Compute: 20, MemoryMiB: 2048}},
		},
		Load: []load.Load{{GPU: gpus[0].PCIAddress, Compute: 70, Memory: 40, Corrected: 2}},
	}))
	record(t, "node-a", gpus, driver.Usage, map[int]types.UID{11: "dev-1", 12: "dev-2"},
		held("team-a", "web", devices[0]), held("team-b", "batch", devices[1]),
		held("team-a", "dev-1", share("1", 20)), held("team-b", "dev-2", share("2", 10)))
}

// The same of AMD's GPUs.
func TestRecordedScrapeOfAMD(t *testing.T) {
	inventory := inventoryOf(t, "gpus:\n- {model: MI300X, count: 2, pci: [\"0000:05:00.0\", \"0000:26:00.0\"]}\n")
	inventory.AMDDriver.Delays = models.AMDDelays{}
	root := t.TempDir()
	kernel, err := amdgpu.New(inventory, amdgpu.Options{Root: root, Seed: "node-b", Sleep: func(time.Duration) {}})
	require.NoError(t, err)
	driver, err := amd.New(amd.Config{Files: kernel, HostDevRoot: root})
	require.NoError(t, err)
	gpus, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	require.NoError(t, driver.SetComputePartition(t.Context(), gpus[0].PCIAddress, "CPX"))
	part, ok := gpus[0].Placement(gpus[0].Name() + "-cpx-3")
	require.True(t, ok)
	whole, ok := gpus[1].Placement(gpus[1].Name())
	require.True(t, ok)
	third := 3
	require.NoError(t, amdgpu.SetFaults(root, amdgpu.Faults{Processes: []amdgpu.Process{
		{PID: 21, GPUs: []string{gpus[0].PCIAddress}, Partition: &third, Use: load.Use{Compute: 80, MemoryMiB: 8192}},
		{PID: 22, GPUs: []string{gpus[1].PCIAddress}, Use: load.Use{Compute: 90, MemoryMiB: 100_000}},
	}}))
	record(t, "node-b", gpus, driver.Usage, nil,
		held("team-a", "finetune", ledger.Device{Name: part.Name(), Placement: part}),
		held("team-b", "pretrain", ledger.Device{Name: whole.Name(), Placement: whole, UUID: gpus[1].UUID}))
}
