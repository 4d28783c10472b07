package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The tests in this file are named for defects that NVIDIA's DRA driver had in
// 2026. Each shows that the same cannot happen here.

// records reads the ledger as it is on disk.
func (m *machine) records() []ledger.Record {
	m.t.Helper()
	var all []ledger.Record
	for _, path := range m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json") {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // released meanwhile
		}
		require.NoError(m.t, err)
		r, err := ledger.Decode(data)
		require.NoError(m.t, err)
		all = append(all, r)
	}
	return all
}

// record is that of one claim.
func (m *machine) record(uid string) ledger.Record {
	m.t.Helper()
	for _, r := range m.records() {
		if string(r.Claim.UID) == uid {
			return r
		}
	}
	require.Fail(m.t, "no record", uid)
	return ledger.Record{}
}

// spec is the CDI file of a claim.
func (m *machine) spec(uid string) string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.config.CDIDir, "gpu.tranche.dev-claim_"+uid+".json"))
	require.NoError(m.t, err)
	return string(data)
}

// It took the parent's UUID for the partition's, so that a second partition on
// the GPU counted as the same device, and was never destroyed.
func TestDefectUUIDOfParent(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	a, b := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", half0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	records := m.records()
	require.Len(t, records, 2)
	for _, r := range records {
		uuid := r.Devices[0].UUID
		assert.True(t, strings.HasPrefix(uuid, "MIG-"), uuid)
		assert.Contains(t, m.spec(string(r.Claim.UID)), uuid)
	}
	assert.NotEqual(t, records[0].Devices[0].UUID, records[1].Devices[0].UUID)
	require.Empty(t, k.unprepare(a))
	assert.Equal(t, []string{half0}, m.partitions(), "only the one, and really")
	require.Empty(t, k.unprepare(b))
	m.nothingHeld()
}

// When no compute instance could be made, the GPU instance stayed, unseen, until
// the machine was booted: neither the next try nor a restart found it.
func TestDefectGPUInstanceWithoutComputeInstance(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	// Not even the undoing works.
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "CreateComputeInstance", GPU: pci0, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
		{Call: "GpuInstanceDestroy", GPU: pci0, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
	}})
	message := k.refused(c)
	assert.Contains(t, message, "could not be removed again")
	assert.Equal(t, []string{small0}, m.partitions())
	require.Len(t, m.records(), 1, "what is left is written down")
	stop()
	m.faults(nvdriver.Faults{})

	k, _ = m.start()
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
	k.works(c)
}

// A claim without an allocation was dereferenced. The helper checks that before
// we do, so this calls the driver itself.
func TestDefectNilAllocation(t *testing.T) {
	c := nodetest.ClaimOf("a", small0)
	c.Status.Allocation = nil
	d := newDriver(t)
	answers, err := d.PrepareResourceClaims(nodetest.Quiet(t.Context()), []*resourceapi.ResourceClaim{c})
	require.NoError(t, err)
	require.ErrorContains(t, answers["a"].Err, "claim team/claim-a is not allocated")
}

// A record that could not be read stopped the plugin for good.
func TestDefectCorruptRecordIsFatal(t *testing.T) {
	for name, data := range map[string]string{"empty": "", "no JSON": "\x00\x00\x00", "cut off": `{"version":1,`} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nodetest.NewAPI())
			m.write("kubelet/plugins/gpu.tranche.dev/claims/x.json", data)
			k, _ := m.start()
			nodetest.AwaitEvent(t, m.api, "LedgerFileBroken", "claim x")
			k.works(nodetest.Allocate(t, m.api, "a", small0))
		})
	}
}

// All records were in one file: one broken byte lost them all.
func TestDefectOneBrokenRecordLosesAll(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	a, b := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", half0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	stop()
	require.NoError(t, os.Truncate(filepath.Join(m.config.DataDir(), "claims", "a.json"), 0))
	require.NoError(t, os.Remove(filepath.Join(m.config.CDIDir, "gpu.tranche.dev-claim_a.json")))
	k, _ = m.start()
	require.Empty(t, k.unprepare(b))
	assert.Equal(t, []string{small0}, m.partitions(), "what cannot be told is left alone")
	nodetest.AwaitEvent(t, m.api, "ForeignPartition", small0)
}

// A start destroyed every partition that no record named, whoever had made it.
func TestDefectForeignPartitionDestroyedAtStart(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, stop := m.start()
	stop()
	m.makeForeign(half0)

	k, _ := m.start()
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "ForeignPartition", half0), "It is left alone")
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "a", half0)), "that Tranche did not make")
	c := nodetest.Allocate(t, m.api, "b", card0)
	assert.Contains(t, k.refused(c), "that Tranche did not make")
	assert.Equal(t, []string{half0}, m.partitions())
	require.Empty(t, k.unprepare(c))
}

// makeForeign makes a partition as an administrator would, behind our back.
func (m *machine) makeForeign(name string) {
	m.t.Helper()
	library, err := nvdriver.New(m.inventory(), nvdriver.Options{Root: m.simulated.Root, Seed: nodetest.NodeName, Tools: m.simulated.Tools})
	require.NoError(m.t, err)
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: m.simulated.Root})
	require.NoError(m.t, err)
	require.NoError(m.t, driver.Open(m.t.Context()))
	gpus, err := driver.Inventory(m.t.Context())
	require.NoError(m.t, err)
	p, ok := gpus[0].Placement(name)
	require.True(m.t, ok)
	_, err = driver.Create(m.t.Context(), p)
	require.NoError(m.t, err)
	require.NoError(m.t, driver.Close(m.t.Context()))
}

// A whole GPU was handed out in MIG mode, in which nothing runs on it.
func TestDefectWholeGPUInMIGMode(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	k.works(nodetest.Allocate(t, m.api, "a", small0)) // leaves MIG mode on
	c := nodetest.Allocate(t, m.api, "b", card0)
	k.mustPrepare(c)
	assert.True(t, strings.HasPrefix(m.records()[0].Devices[0].UUID, "GPU-"))
	// Were the mode still on, a partition would be found or made.
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "c", half0)), "still holds "+card0)
	require.Empty(t, k.unprepare(c))
	k.works(nodetest.Allocate(t, m.api, "d", half0))
}

// The first device of a claim stayed prepared when the second one failed.
func TestDefectHalfPreparedClaim(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "0000:43:00.0", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}})
	c := nodetest.Allocate(t, m.api, "a", small0, card1+"-mig-1g-10gb-4")
	k.refused(c)
	m.nothingHeld()
	m.faults(nvdriver.Faults{})
	k.works(c)
}

// Two requests of a claim with one device made two CDI devices of one name, a
// file that no runtime reads.
func TestDefectOneDeviceTwiceInClaim(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.ClaimOf("a", small0, small0)
	c.Status.Allocation.Devices.Results[1].AdminAccess = new(true)
	_, err := m.api.ResourceV1().ResourceClaims("team").Create(t.Context(), c, metav1.CreateOptions{})
	require.NoError(t, err)
	ids := k.mustPrepare(c)
	const device = "gpu.tranche.dev/claim=" + small0 + "_a"
	assert.Equal(t, []string{device, device}, slices.DeleteFunc(ids, func(id string) bool { return id != device }))
	assert.Equal(t, 1, strings.Count(m.spec("a"), `"name":"`+small0+`_a"`))
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}

// One lock for the node: a GPU that hung held up all others until their lock
// timed out.
func TestDefectHangingGPUHoldsUpOthers(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	m.hangIn("CreateGpuInstance")
	stuck := nodetest.Allocate(t, m.api, "stuck", small0)
	var answer sync.WaitGroup
	answer.Go(func() { assert.NotEmpty(t, k.mustPrepare(stuck)) })
	m.awaitHang()
	other := nodetest.Allocate(t, m.api, "other", card1+"-mig-1g-10gb-4")
	k.mustPrepare(other)
	require.Empty(t, k.unprepare(other))
	m.faults(nvdriver.Faults{})
	answer.Wait()
	require.Empty(t, k.unprepare(stuck))
	m.nothingHeld()
}

// Partitions that were gone after a reload of the driver were handed out from
// the record, dead.
func TestDefectDeadPartitionFromRecord(t *testing.T) {
	for name, end := range map[string]func(root string) error{"driver reloaded": nvdriver.ReloadDriver, "rebooted": nvdriver.Reboot} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nodetest.NewAPI())
			k, stop := m.start()
			c := nodetest.Allocate(t, m.api, "a", small0)
			k.mustPrepare(c)
			stop()
			require.NoError(t, end(m.simulated.Root))
			require.Empty(t, m.partitions())
			k, _ = m.start()
			k.mustPrepare(c)
			assert.Equal(t, []string{small0}, m.partitions())
			assert.Contains(t, m.spec("a"), m.records()[0].Devices[0].UUID)
			require.Empty(t, k.unprepare(c))
			m.nothingHeld()
		})
	}
}

// Records of claims that are gone, and CDI files without a record, stayed for
// ever.
func TestDefectLeftoversStay(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	stop()
	require.NoError(t, m.api.ResourceV1().ResourceClaims("team").Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	m.write("cdi/gpu.tranche.dev-claim_x.json", "{}")

	k, _ = m.start()
	nodetest.AwaitEvent(t, m.api, "LeftoverReleased", small0)
	nodetest.AwaitEvent(t, m.api, "OrphanFileRemoved", "claim x")
	m.nothingHeld()
	k.works(nodetest.Allocate(t, m.api, "b", half0))
}

// newDriver is a driver without hardware, for what never gets that far.
func newDriver(t *testing.T) *driver {
	t.Helper()
	gpus := &inventory.GPUs{}
	gpus.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	records, _, err := ledger.Open(t.TempDir())
	require.NoError(t, err)
	claims := claim.NewManager(claim.Config{Node: nodetest.NodeName, Ledger: records, GPUs: gpus.Now})
	return &driver{
		nudge: func() {}, gpus: gpus, publisher: publisher.New(publisher.Config{GPUs: gpus}),
		metrics: telemetry.NewMetrics(records.List), claims: claims,
	}
}
