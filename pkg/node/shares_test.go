package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Shares of the GPUs of these tests.
const (
	fraction0  = card0 + "-fraction-share"
	memory0    = card0 + "-memory-share"
	halfShare0 = half0 + "-memory-share"
)

// profile makes a profile with one rule the one that the node has applied, as if the
// controller had had it applied.
func (m *machine) profile(rule string) {
	m.t.Helper()
	applied := map[string]any{"version": 1, "applied": map[string]any{"profile": snapshot(m.t, "default", "["+rule+"]")}}
	data, err := json.Marshal(applied)
	require.NoError(m.t, err)
	name, err := filepath.Rel(m.path(""), m.config.profileFile())
	require.NoError(m.t, err)
	m.replace(name, string(data))
}

// replace writes a file in one step, while somebody may read it.
func (m *machine) replace(name, text string) {
	m.t.Helper()
	m.write("new/"+name, text)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.path(name)), 0o750))
	require.NoError(m.t, os.Rename(m.path("new/"+name), m.path(name)))
}

// newSharedMachine shares partitions 3g.40gb, too.
func newSharedMachine(t *testing.T, api *fake.Clientset) *machine {
	m := newMachine(t, api)
	m.profile("{sharing: {partitions: {profiles: [3g.40gb]}}}")
	return m
}

// publishedDevice finds a device in the slices.
func publishedDevice(t *testing.T, api *fake.Clientset, name string) (resourceapi.Device, bool) {
	t.Helper()
	for _, d := range nodetest.Published(t, api) {
		if d.Name == name {
			return d, true
		}
	}
	return resourceapi.Device{}, false
}

// awaitReplicas waits until the replicas of a share by fraction are so many
// thousandths of it.
func awaitReplicas(t *testing.T, api *fake.Clientset, device string, thousandths int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, ok := publishedDevice(t, api, device)
		return ok && d.Capacity["fraction"].RequestPolicy.Default.MilliValue() == thousandths
	}, nodetest.Patience, nodetest.Tick)
}

// Two claims of two pods have a part of one GPU each: they are told apart by the
// id of their share, in what the kubelet hears, in the CDI file and in the status.
// Nothing else gets the GPU until both are gone.
func TestTwoSharesOnOneGPU(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	a, b := nodetest.Allocate(t, m.api, "a", fraction0), nodetest.Allocate(t, m.api, "b", fraction0)
	answer := k.prepare(a)["a"]
	require.Empty(t, answer.Error)
	require.Len(t, answer.Devices, 1)
	assert.Equal(t, "share-0a", answer.Devices[0].GetShareId())
	assert.Contains(t, answer.Devices[0].CdiDeviceIds, "gpu.tranche.dev/claim="+fraction0+"-share-0a_a")
	assert.Contains(t, m.spec("a"), `"name":"`+fraction0+`-share-0a_a"`)
	k.mustPrepare(b)

	status := nodetest.AwaitStatus(t, m.api, a, metav1.ConditionTrue)
	assert.Equal(t, "share-0a", *status.ShareID)
	var facts telemetry.DeviceFacts
	require.NoError(t, json.Unmarshal(status.Data.Raw, &facts))
	g, ok := publishedDevice(t, m.api, card0)
	require.True(t, ok)
	assert.Equal(t, *g.Attributes["uuid"].StringValue, facts.UUID)
	assert.Equal(t, telemetry.DeviceFacts{
		UUID: facts.UUID, ShareUnit: gpu.ByFraction, SharingStrategy: gpu.TimeSlicing, Isolation: gpu.IsolationNone,
	}, facts, "no MPS on this machine")
	for name, a := range map[string]string{names.AttributeShareUnit: string(facts.ShareUnit), names.AttributeSharingStrategy: string(facts.SharingStrategy)} {
		assert.Contains(t, string(status.Data.Raw), `"`+name+`":"`+a+`"`, "the keys are the names of the attributes")
	}

	c := nodetest.Allocate(t, m.api, "c", small0)
	assert.False(t, k.granted(c), "a partition of a GPU that is shared")
	require.Empty(t, k.unprepare(a))
	assert.False(t, k.granted(c))
	assert.Contains(t, m.spec("b"), fraction0, "the other is undisturbed")
	require.Empty(t, k.unprepare(b))
	k.works(c)
}

// Two claims in one container each see one instance, which is made with the first
// and destroyed with the last.
func TestShareOfAPartition(t *testing.T) {
	m := newSharedMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	a, b := nodetest.Allocate(t, m.api, "a", halfShare0), nodetest.Allocate(t, m.api, "b", halfShare0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	assert.Equal(t, []string{half0}, m.partitions())
	assert.Equal(t, m.record("a").Devices[0].UUID, m.record("b").Devices[0].UUID)
	assert.True(t, strings.HasPrefix(m.record("a").Devices[0].UUID, "MIG-"))
	var report bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &report, false))
	assert.Contains(t, report.String(), "claim team/claim-a, pod pod-a (2000 MiB)")
	assert.NotContains(t, report.String(), "not made by Tranche")
	require.Empty(t, k.unprepare(a))
	assert.Equal(t, []string{half0}, m.partitions())
	require.Empty(t, k.unprepare(b))
	m.nothingHeld()
}

// What the workload is told is what it has, not what the device has.
func TestMetadataOfAShare(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", memory0))
	var told strings.Builder
	for _, file := range m.files(m.config.DataDir()+"/dra-device-metadata", "team_claim-a*/*/*") {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		told.Write(data)
	}
	text := strings.Join(strings.Fields(told.String()), "")
	assert.Contains(t, text, `"memory":{"int":2097152000}`)
	assert.Contains(t, text, `"shareUnit":{"string":"Memory"}`)
}

// New settings hold for each GPU from the moment on at which nobody holds a
// share of it, also over a restart of the plugin; and it is told.
func TestSettingsChangeWhileSharesAreInUse(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {replicas: 10}}")
	k, stop := m.start()
	awaitReplicas(t, m.api, fraction0, 100)
	a := nodetest.Allocate(t, m.api, "a", fraction0)
	k.mustPrepare(a)

	m.profile("{sharing: {replicas: 4}}")
	awaitReplicas(t, m.api, card1+"-fraction-share", 250)
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "SettingsApplied", "4 replicas"), card1+" are")
	wait := nodetest.AwaitEvent(t, m.api, "SettingsPending", card0)
	assert.Contains(t, wait, "4 replicas")
	assert.Contains(t, wait, fraction0+" is held by claim team/claim-a, pod pod-a")
	awaitReplicas(t, m.api, fraction0, 100)

	stop()
	k, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	awaitReplicas(t, m.api, fraction0, 100)
	require.Empty(t, k.unprepare(a))
	awaitReplicas(t, m.api, fraction0, 250)
	k.works(nodetest.Allocate(t, m.api, "b", fraction0))
}

// What a vendor's extended resource means is said by the settings of each GPU.
func TestExtendedResourceIsAReplica(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.ExtendedResources = map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu"}
	m.profile("{extendedResource: {device: GPUReplica}, gpus: {pciBusIDs: ['" + pci0 + "']}}")
	_, _ = m.start()
	awaitDevices(t, m.api, false, untainted)
	var serving []string
	for _, d := range nodetest.Published(t, m.api) {
		if d.Attributes[names.AttributeExtendedResourceName].StringValue != nil {
			serving = append(serving, d.Name)
		}
	}
	assert.ElementsMatch(t, []string{fraction0, card1}, serving)
}

// Shares of AMD GPUs are held side by side, and so are those of partitions: the
// GPU is switched for the first.
func TestSharesOfAMDGPUs(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {partitions: {profiles: [cpx]}}}")
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	for _, share := range []struct{ device, render string }{{amdCard0 + "-fraction-share", "128"}, {cpx3 + "-memory-share", "131"}} {
		a, b := nodetest.Allocate(t, m.api, "a", share.device), nodetest.Allocate(t, m.api, "b", share.device)
		k.mustPrepare(a)
		k.mustPrepare(b)
		assert.Equal(t, m.record("a").Devices[0].UUID, m.record("b").Devices[0].UUID)
		assert.Equal(t, gpu.IsolationNone, m.record("a").Devices[0].Placement.Isolation)
		spec := m.spec("a")
		assert.Contains(t, spec, `"path":"/dev/kfd"`)
		assert.Contains(t, spec, `"path":"/dev/dri/renderD`+share.render+`"`)
		assert.Equal(t, 2, strings.Count(spec, `"hostPath"`), "the driver and one GPU or partition")
		require.Empty(t, k.unprepare(a))
		assert.False(t, k.granted(nodetest.Allocate(t, m.api, "c", dpx0)), "another mode")
		require.Empty(t, k.unprepare(b))
		for _, c := range []string{"a", "b", "c"} {
			require.NoError(t, m.api.ResourceV1().ResourceClaims("team").Delete(t.Context(), "claim-"+c, metav1.DeleteOptions{}))
		}
	}
	assert.Equal(t, "CPX", m.mode())
	m.nothingHeld()
}
