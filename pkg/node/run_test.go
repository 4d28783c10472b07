package node

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestRunPreparesAndReleases(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	assert.Contains(t, k.services, "v1.DRAPlugin")
	c := nodetest.Allocate(t, m.api, "a", card0+"-mig-1g-10gb-4", card1)
	assert.Equal(t, []string{
		"gpu.tranche.dev/claim=" + card0 + "-mig-1g-10gb-4_a",
		"gpu.tranche.dev/claim=" + card1 + "_a",
	}, k.mustPrepare(c))
	assert.Equal(t, []string{card0 + "-mig-1g-10gb-4"}, m.partitions())
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
	stop()
}

// Other users of the node can read what container runtimes and pods need, and nothing else.
func TestWhoMayReadWhatThePluginWrites(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0, card1))
	var got strings.Builder
	for _, dir := range []string{m.config.CDIDir, m.config.DataDir()} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			fmt.Fprintf(&got, "%s %s\n", info.Mode(), strings.TrimPrefix(path, filepath.Dir(dir)))
			return nil
		}))
	}
	golden.Equal(t, "testdata/modes.txt", strings.ReplaceAll(got.String(), fmt.Sprintf("-%d.", os.Getpid()), "-PID."))
}

// The container that gets a request with two MIG partitions can use one of them only.
func TestARequestWithTwoMIGPartitions(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0, card0+"-mig-1g-10gb-5")
	c.Status.Allocation.Devices.Results[1].Request = c.Status.Allocation.Devices.Results[0].Request
	_, err := m.api.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	k.mustPrepare(c)
	nodetest.AwaitEventOn(t, m.api, "Pod", "pod-a", "SeveralMIGPartitions", "Request r0 of claim claim-a has 2 MIG partitions")
}

// The workload finds what it got in a file of a format that all DRA drivers
// share.
func TestMetadata(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	data, err := os.ReadFile(filepath.Join(m.config.DataDir(), "dra-device-metadata", c.Namespace+"_"+c.Name, "r0", "metadata.json"))
	require.NoError(t, err)
	for _, part := range []string{`"profile":{"string":"1g.10gb"}`, `"memory":{"int":`, `"parentUUID":{"string":"GPU-`, `"uuid":{"string":"MIG-`} {
		assert.Contains(t, strings.Join(strings.Fields(string(data)), ""), part)
	}
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}

// What the kubelet has forgotten is released at the start, with what the helper library wrote for
// it. CDI files without a record go, too.
func TestReleaseOfForgottenClaim(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	k.mustPrepare(c)
	stop()
	require.NoError(t, m.api.ResourceV1().ResourceClaims(c.Namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	m.write("cdi/gpu.tranche.dev-claim_x.json", "{}")

	k, _ = m.start()
	nodetest.AwaitEvent(t, m.api, "LeftoverReleased", small0)
	nodetest.AwaitEvent(t, m.api, "OrphanFileRemoved", "claim x")
	m.nothingHeld()
	require.Eventually(t, func() bool {
		return len(m.files(filepath.Join(m.config.DataDir(), "dra-device-metadata"), "*")) == 0
	}, nodetest.Patience, nodetest.Tick)
	k.works(nodetest.Allocate(t, m.api, "b", half0))
}

// The claim's status says what its devices are, or why there are none.
func TestClaimStatus(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci0, PID: 4711}}})
	k.refused(c)
	failed := nodetest.AwaitStatus(t, m.api, c, metav1.ConditionFalse)
	assert.Equal(t, "PrepareFailed", failed.Conditions[0].Reason)
	assert.Contains(t, failed.Conditions[0].Message, "in use by process 4711")

	m.faults(nvdriver.Faults{})
	k.mustPrepare(c)
	ready := nodetest.AwaitStatus(t, m.api, c, metav1.ConditionTrue)
	assert.Equal(t, []string{"gpu.tranche.dev", small0}, []string{ready.Driver, ready.Device})
	assert.Contains(t, string(ready.Data.Raw), `"profile":"1g.10gb","uuid":"MIG-`)
	require.Empty(t, k.unprepare(c))
}
