package node

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hook"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

const (
	pluginPod types.UID = "99999999-2222-3333-4444-555555555555"
	webPod    types.UID = "3f0f0d6e-52f4-4c4b-9a0e-6d3b0f2f0a11"
)

// limitedMachine is a machine whose driver limits memory by control group.
func limitedMachine(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, nodetest.NewAPI())
	m.simulated.Library = "615"
	m.config.PodUID, m.config.CgroupRoot = pluginPod, nvdriver.Groups(m.simulated.Root)
	m.write("tranche-hook", "#!/bin/sh\n")
	m.config.Hook = m.path("tranche-hook")
	m.group(pluginPod, "plugin")
	return m
}

// group makes the control group of a container.
func (m *machine) group(pod types.UID, container string) string {
	m.t.Helper()
	group := filepath.Join("/kubepods/burstable/pod"+string(pod), container)
	require.NoError(m.t, os.MkdirAll(filepath.Join(m.config.CgroupRoot, group), 0o755)) //nolint:gosec // as the kernel's
	return group
}

// reserved is a claim for the pod web.
func (m *machine) reserved(uid string, devices ...string) *resourceapi.ResourceClaim {
	m.t.Helper()
	c := nodetest.ClaimOf(uid, devices...)
	c.Status.ReservedFor[0].UID = webPod
	_, err := m.api.ResourceV1().ResourceClaims(c.Namespace).Create(m.t.Context(), c, metav1.CreateOptions{})
	require.NoError(m.t, err)
	return c
}

// hooks are those that the CDI file of a claim has for this purpose.
func (m *machine) hooks(claim string) (hooks []*cdispecs.Hook) {
	m.t.Helper()
	var spec cdispecs.Spec
	require.NoError(m.t, json.Unmarshal([]byte(m.spec(claim)), &spec))
	for _, d := range spec.Devices {
		for _, h := range d.ContainerEdits.Hooks {
			if h.HookName == "createRuntime" {
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}

// starts runs a hook as the container runtime does.
func (m *machine) starts(h *cdispecs.Hook, pod types.UID, container string) error {
	m.t.Helper()
	return m.startsWithin(hook.Patience, h, pod, container)
}

// startsWithin is starts with a hook that waits less.
func (m *machine) startsWithin(patience time.Duration, h *cdispecs.Hook, pod types.UID, container string) error {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	proc := m.t.TempDir()
	require.NoError(m.t, os.Mkdir(filepath.Join(proc, "4711"), 0o700))
	require.NoError(m.t, os.WriteFile(filepath.Join(proc, "4711/cgroup"), []byte("0::"+m.group(pod, container)+"\n"), 0o600))
	return hook.Run(ctx, h.Args[1:], strings.NewReader(`{"pid":4711}`), proc)
}

// limitOf is the limit of a pod on the first GPU in MiB, 0 for none, guaranteedOf what it is guaranteed.
func (m *machine) limitOf(pod types.UID) uint64 {
	m.t.Helper()
	if limit := m.memoryLimit(pod); limit.Hard != nvml.DEVICE_MEMORY_LIMIT_MAX {
		return limit.Hard >> 20
	}
	return 0
}

func (m *machine) guaranteedOf(pod types.UID) uint64 {
	m.t.Helper()
	return m.memoryLimit(pod).Soft >> 20
}

func (m *machine) memoryLimit(pod types.UID) nvstate.MemoryLimit {
	m.t.Helper()
	st, err := nvstate.Store(m.simulated.Root).Read()
	require.NoError(m.t, err)
	return st.GPUs[0].MemoryLimits[filepath.Join(m.config.CgroupRoot, "kubepods/burstable/pod"+string(pod))]
}

// The shares of a GPU whose driver limits memory are published so, need no MPS, and their pods get their
// limits before containers start, and again when somebody takes them away.
func TestSharesLimitedByTheKernel(t *testing.T) {
	m := limitedMachine(t)
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	d, ok := publishedDevice(t, m.api, memory0)
	require.True(t, ok)
	assert.Equal(t, string(gpu.IsolationKernel), *d.Attributes[names.AttributeIsolation].StringValue)
	assert.NotContains(t, d.Capacity, resourceapi.QualifiedName(names.CapacityComputePercent), "that needs MPS")
	assert.Zero(t, m.limitOf(pluginPod), "nothing is left of the trial")
	assert.FileExists(t, filepath.Join(m.config.DataDir(), hook.Program))

	k.mustPrepare(m.reserved("a", memory0))
	assert.Empty(t, m.runningDaemons())
	hooks := m.hooks("a")
	require.Len(t, hooks, 1)
	assert.FileExists(t, hooks[0].Path)
	require.NoError(t, m.starts(hooks[0], webPod, "main"))
	assert.EqualValues(t, 2000, m.limitOf(webPod))
	used := nvdriver.Process{GPU: "0000:1b:00.0", PID: 1, Group: filepath.Join(m.config.CgroupRoot, m.group(webPod, "main"))}
	used.MemoryMiB = 2001
	require.ErrorIs(t, nvdriver.Allocate(m.simulated.Root, used), nvdriver.ErrOutOfMemory)
	require.ErrorContains(t, m.starts(hooks[0], pluginPod, "main"), "claim team/claim-a is not reserved for pod "+string(pluginPod))

	// Somebody removes the limit; the driver is reloaded while no container runs.
	m.forgetLimits()
	require.Eventually(t, func() bool { return m.limitOf(webPod) == 2000 }, nodetest.Patience, nodetest.Tick)
	nodetest.AwaitEvent(t, m.api, names.EventShareLimitRestored, "pod team/pod-a on GPU "+card0)

	// The plugin restarts, and misses that a limit is lost. No container starts meanwhile without one.
	stop()
	m.forgetLimits()
	require.ErrorContains(t, m.startsWithin(time.Second, hooks[0], webPod, "main"), "Tranche's kubelet plugin does not answer on this node")
	k, _ = m.start()
	require.Eventually(t, func() bool { return m.limitOf(webPod) == 2000 }, nodetest.Patience, nodetest.Tick)
	require.NoError(t, m.starts(hooks[0], webPod, "main"))

	require.Empty(t, k.unprepare(nodetest.ClaimOf("a", memory0)))
	require.Eventually(t, func() bool { return m.limitOf(webPod) == 0 }, nodetest.Patience, nodetest.Tick, "the pod has no share any more")
	require.ErrorContains(t, m.starts(hooks[0], webPod, "main"), "claim a is not prepared on this node")
}

// A claim can have more than it requests, as far as the profile allows. It is told what it has, and nothing is
// guaranteed any more once it is released.
func TestBurst(t *testing.T) {
	m := limitedMachine(t)
	m.profile("{sharing: {maxMemoryLimitPercent: 150}}")
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := m.reserved("a", memory0)
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: claimconfig.New(4000).DeviceConfiguration,
	}}
	_, err := m.api.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	k.mustPrepare(c)
	assert.EqualValues(t, 3000<<20, m.record("a").Devices[0].MemoryLimit)
	assert.Contains(t, string(nodetest.AwaitStatus(t, m.api, c, metav1.ConditionTrue).Data.Raw), `"memoryLimit":"3000Mi"`)
	nodetest.AwaitEventOn(t, m.api, "Pod", "pod-a", names.EventShareLimitReduced, "is 3000 MiB, not the 4000 MiB of its configuration: the profile of the node allows 150 % of the request")
	require.NoError(t, m.starts(m.hooks("a")[0], webPod, "main"))
	assert.EqualValues(t, 3000, m.limitOf(webPod))
	assert.EqualValues(t, 2000, m.guaranteedOf(webPod))
	require.Empty(t, k.unprepare(c))
	assert.Zero(t, m.guaranteedOf(webPod), "at once, while the pod's control group exists")
	assert.Zero(t, m.limitOf(webPod))
}

// The shares of an AMD GPU are limited by the kernel's controller, in the same way: only if that is on, and
// the published isolation says that it was never tried.
func TestSharesOfAMDLimited(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	m.config.PodUID, m.config.CgroupRoot = pluginPod, nvdriver.Groups(m.simulated.Root)
	m.write("tranche-hook", "#!/bin/sh\n")
	m.config.Hook = m.path("tranche-hook")
	folder := func(pod types.UID) string {
		return filepath.Join(m.config.CgroupRoot, "kubepods/burstable/pod"+string(pod))
	}
	for _, pod := range []types.UID{pluginPod, webPod} {
		m.group(pod, "main")
		require.NoError(t, os.WriteFile(filepath.Join(folder(pod), "dmem.max"), nil, 0o600))
	}
	isolation := func() string {
		d, ok := publishedDevice(t, m.api, amdCard0+"-memory-share")
		require.True(t, ok)
		return *d.Attributes[names.AttributeIsolation].StringValue
	}
	_, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	assert.Equal(t, string(gpu.IsolationNone), isolation(), "off by default")
	stop()

	m.config.UntestedLimits = true
	k, _ := m.start()
	require.Eventually(t, func() bool { return isolation() == string(gpu.IsolationUntested) }, nodetest.Patience, nodetest.Tick)
	kernel := m.kernel().(*amdgpu.Kernel)
	limit := func(pod types.UID) string {
		data, err := kernel.Groups().ReadFile(filepath.Join(folder(pod), "dmem.max"))
		require.NoError(t, err)
		return strings.Fields(string(data))[1]
	}
	assert.Equal(t, "max", limit(pluginPod), "nothing is left of the trial")

	k.mustPrepare(m.reserved("a", amdCard0+"-memory-share"))
	hooks := m.hooks("a")
	require.Len(t, hooks, 1)
	require.NoError(t, m.starts(hooks[0], webPod, "main"))
	assert.Equal(t, "2097152000", limit(webPod))
	require.ErrorIs(t, kernel.Allocate(filepath.Join(folder(webPod), "main"), amdAddress, 2001<<20), amdgpu.ErrOutOfMemory)

	// Somebody removes the limit.
	require.NoError(t, kernel.Groups().WriteFile(filepath.Join(folder(webPod), "dmem.max"), []byte("drm/"+amdAddress+"/vram max")))
	require.Eventually(t, func() bool { return limit(webPod) == "2097152000" }, nodetest.Patience, nodetest.Tick)
	nodetest.AwaitEvent(t, m.api, names.EventShareLimitRestored, "pod team/pod-a on GPU "+amdCard0)
	require.Empty(t, k.unprepare(nodetest.ClaimOf("a", amdCard0+"-memory-share")))
	assert.Equal(t, "max", limit(webPod), "it has no share any more")
}

// A claim of a group of pods is told on the claim, because the pods are not known.
func TestReducedLimitOfGroup(t *testing.T) {
	m := limitedMachine(t)
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := m.reserved("a", memory0)
	c.Status.ReservedFor[0] = resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "training", UID: "group"}
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: claimconfig.New(4000).DeviceConfiguration,
	}}
	_, err := m.api.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	k.mustPrepare(c)
	nodetest.AwaitEventOn(t, m.api, "ResourceClaim", "claim-a", names.EventShareLimitReduced, "is 2000 MiB, not the 4000 MiB of its configuration")
}

// forgetLimits removes the limits of all groups.
func (m *machine) forgetLimits() {
	m.t.Helper()
	require.NoError(m.t, nvstate.Store(m.simulated.Root).Update(func(st *nvstate.State) (*nvstate.State, error) {
		for i := range st.GPUs {
			st.GPUs[i].MemoryLimits = nil
		}
		return st, nil
	}))
}

// What the program for hooks does not send is refused.
func TestHookSocket(t *testing.T) {
	m := limitedMachine(t)
	m.start()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", hook.Socket(m.config.DataDir(), string(pluginPod)))
	}}}
	for _, body := range []string{"", "{}", `{"claim":"a","device":"b","group":"/../c"}`, strings.Repeat(" ", 1<<20)} {
		response, err := client.Post("http://plugin/", "", bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		assert.Equal(t, http.StatusConflict, response.StatusCode, "%.20s", body)
		require.NoError(t, response.Body.Close())
	}
	info, err := os.Stat(hook.Socket(m.config.DataDir(), string(pluginPod)))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	folder, err := os.Stat(m.config.DataDir())
	require.NoError(t, err)
	assert.Zero(t, folder.Mode().Perm()&0o027, "others cannot reach the socket")
}
