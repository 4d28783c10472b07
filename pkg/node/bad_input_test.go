package node

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

const (
	small0 = card0 + "-mig-1g-10gb-4"
	half0  = card0 + "-mig-3g-40gb-0"
)

func TestUnknownInventory(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.simulated.Inventory = "h1000x8"
	require.ErrorContains(t, m.run(), `unknown inventory "h1000x8": choose one of `)
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "HardwareUnusable", ""), `Tranche cannot use the GPUs of this node: unknown inventory "h1000x8"`)
	m.simulated.Inventory = "two"
	k, _ := m.start()
	k.works(nodetest.Allocate(t, m.api, "a", small0))
}

func TestComputeInstanceFailsAfterGPUInstanceExists(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateComputeInstance", GPU: pci0, Error: nvdriver.Return(nvml.ERROR_INSUFFICIENT_RESOURCES), Times: 1}}})
	c := nodetest.Allocate(t, m.api, "a", half0, small0)
	message := k.refused(c)
	assert.Contains(t, message, "GpuInstanceCreateComputeInstance")
	assert.NotContains(t, message, "could not be")
	m.nothingHeld()
	k.works(c)
}

// A release waits while the driver names a process that uses the partition.
func TestInUseAtDestroy(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	state, err := nvstate.Store(m.simulated.Root).Read()
	require.NoError(t, err)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci0, GPUInstance: &state.GPUs[0].Instances[0].ID, PID: 4711}}})
	message := k.unprepare(c)
	assert.Contains(t, message, "release claim team/claim-a: destroy "+small0)
	assert.Contains(t, message, "a process still uses it")
	assert.Contains(t, message, "process 4711")
	assert.Contains(t, nodetest.AwaitEventOn(t, m.api, "Pod", "pod-a", "ReleaseFailed", "a process still uses it"), "The GPU of claim claim-a cannot be released, which is retried")
	assert.Equal(t, []string{small0}, m.partitions())
	// Meanwhile nobody else gets the place.
	assert.Contains(t, k.refused(nodetest.Allocate(t, m.api, "b", card0+"-mig-3g-40gb-4")), "claim team/claim-a (pod pod-a) still holds "+small0)

	m.faults(nvdriver.Faults{})
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
	k.works(c)
}

func TestBrokenLedgerFile(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	a, b := nodetest.Allocate(t, m.api, "a", small0), nodetest.Allocate(t, m.api, "b", half0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	stop()
	record := filepath.Join(m.config.DataDir(), "claims", "a.json")
	require.NoError(t, os.WriteFile(record, []byte(`{"version":1,"cla`), 0o600))
	m.write("kubelet/plugins/gpu.tranche.dev/claims/x.json", "\x00") // there is no copy of this one

	k, _ = m.start()
	nodetest.AwaitEvent(t, m.api, "LedgerFileBroken", "claim x")
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "LedgerFileBroken", "claim a"), "lies now at "+record+".broken; its record was rebuilt from the claim's CDI file")
	assert.Equal(t, []string{small0, half0}, m.partitions())
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(b))
	require.Empty(t, k.unprepare(a))
	m.nothingHeld()
	k.works(b)
}

// A record that only a later version can use stays, with its partition and its CDI file, until that
// version is back. Other GPUs can be used.
func TestRecordThatNeedsALaterVersion(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	a := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(a)
	stop()
	file := filepath.Join(m.config.DataDir(), "claims", "a.json")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(before, []byte(`"version":1,"minReader":1`), []byte(`"version":2,"minReader":2`), 1), 0o600))

	k, stop = m.start()
	nodetest.AwaitEvent(t, m.api, "LedgerRecordNewer", "the record of claim team/claim-a cannot be used: it has version 2")
	require.Contains(t, k.unprepare(a), "run the newer version of Tranche on this node again")
	b := nodetest.Allocate(t, m.api, "b", card1)
	k.mustPrepare(b)
	require.Empty(t, k.unprepare(b))
	assert.Equal(t, []string{small0}, m.partitions())
	assert.NotEmpty(t, m.spec("a"))
	stop()

	require.NoError(t, os.WriteFile(file, before, 0o600))
	k, _ = m.start()
	require.Empty(t, k.unprepare(a))
	m.nothingHeld()
}

func TestFullDisk(t *testing.T) {
	for name, folder := range map[string]func(*Config) string{
		"for CDI":    func(c *Config) string { return c.CDIDir },
		"for ledger": func(c *Config) string { return filepath.Join(c.DataDir(), "claims") },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nodetest.NewAPI())
			dir := folder(m.config)
			require.NoError(t, os.MkdirAll(dir, 0o750))
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
				t.Skipf("a small tmpfs cannot be mounted (run as root): %v", err)
			}
			t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
			k, _ := m.start()
			filler := filepath.Join(dir, "filler")
			require.ErrorIs(t, os.WriteFile(filler, make([]byte, 128<<10), 0o600), unix.ENOSPC)

			c := nodetest.Allocate(t, m.api, "a", small0)
			message := k.refused(c)
			assert.Contains(t, message, dir+" (is the disk full or read-only?)")
			assert.Contains(t, message, "no space left on device")
			m.nothingHeld()
			require.NoError(t, os.Remove(filler))
			k.works(c)
		})
	}
}

func TestSecondPluginOnNode(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	m.config.Installation = "other/tranche"
	require.ErrorContains(t, m.run(), "runs on this node and holds")
	assert.Equal(t, []string{small0}, m.partitions(), "it touched nothing")
	require.Empty(t, k.unprepare(c), "the first one is still there")
	k.works(c)
}

// Who is in the way of a claim is told to administrators only, where it is of another
// namespace.
func TestConflictTellsUsersLessThanAdministrators(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))
	theirs := nodetest.ClaimOf("b", small0)
	theirs.Namespace = "other"
	_, err := m.api.ResourceV1().ResourceClaims("other").Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	message := k.refused(theirs)
	assert.Contains(t, message, small0+" cannot be prepared: a claim in another namespace still holds "+small0)
	status := nodetest.AwaitStatus(t, m.api, theirs, metav1.ConditionFalse).Conditions[0].Message
	for _, text := range []string{message, status} {
		assert.NotContains(t, text, "claim-a")
		assert.NotContains(t, text, "pod-a")
	}
	nodetest.AwaitEvent(t, m.api, "ClaimConflict", "Claim other/claim-b is not prepared: "+small0+" cannot be prepared: claim team/claim-a (pod pod-a) still holds "+small0)
}

// The CDI folder is removed on the host while the plugin has it mounted: the plugin ends,
// so that its next container mounts the folder of that name.
func TestCDIFolderIsRemovedUnderTheMount(t *testing.T) {
	needsMounts(t)
	m := newMachine(t, nodetest.NewAPI())
	host := m.path("cdi-on-host")
	require.NoError(t, os.MkdirAll(host, 0o750))
	require.NoError(t, os.MkdirAll(m.config.CDIDir, 0o750))
	require.NoError(t, unix.Mount(host, m.config.CDIDir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(m.config.CDIDir, unix.MNT_DETACH)) })
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(nodetest.Quiet(t.Context()))
	defer cancel()
	go func() { ended <- Run(ctx, m.config, m.api) }()
	k := m.register()
	require.NoError(t, os.RemoveAll(host))
	a := nodetest.Allocate(t, m.api, "a", small0)
	response, err := k.dra.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(a)}})
	if status.Code(err) != codes.Unavailable { // the plugin may end before the answer is on its way
		require.NoError(t, err)
		assert.Contains(t, response.Claims["a"].Error, "the folder was removed on the host")
	}
	select {
	case err := <-ended:
		require.ErrorIs(t, err, cdi.ErrDeleted)
	case <-time.After(nodetest.Patience):
		require.Fail(t, "the plugin does not end")
	}
	assert.Empty(t, m.partitions())
}
