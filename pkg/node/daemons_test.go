package node

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// buildTools builds the program that stands in for NVIDIA's, once.
var buildTools = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tranche-tools")
	if err != nil {
		return "", err
	}
	toolsDir = dir
	program := filepath.Join(dir, "tools")
	build := exec.Command("go", "build", "-o", program, "../../test/simulator/cmd/simulated-nvidia-tools") //nolint:noctx // it ends
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	return program, build.Run()
})

// toolsDir is the folder with it, which goes when the tests end.
var toolsDir string

// newMPSMachine is a machine whose driver brings MPS.
func newMPSMachine(t *testing.T, api *fake.Clientset) *machine {
	needsMounts(t)
	m := newMachine(t, api)
	tools, err := buildTools()
	require.NoError(t, err)
	m.simulated.Root, m.simulated.Tools, m.config.MPSLauncher = m.path("sim"), tools, nil
	t.Cleanup(func() { assert.NoError(t, m.config.endDaemons(nodetest.Quiet(context.Background()))) })
	return m
}

// needsMounts skips a test that mounts file systems, or whose daemons do.
func needsMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
}

// runningDaemons names the MPS daemons that were started and not stopped.
func (m *machine) runningDaemons() []string {
	m.t.Helper()
	names, err := m.config.supervisor(m.t.Context(), "").List()
	require.NoError(m.t, err)
	return names
}

// daemonPID is the process of a running MPS daemon.
func (m *machine) daemonPID(name string) int {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.config.mpsDir(), name, "pid"))
	require.NoError(m.t, err)
	var daemon struct{ PID int }
	require.NoError(m.t, json.Unmarshal(data, &daemon))
	return daemon.PID
}

// Where the driver brings MPS, a claim has a daemon of its own, which goes with it.
func TestDaemonOfAClaim(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	d, _ := publishedDevice(t, m.api, fraction0)
	assert.Equal(t, string(gpu.IsolationCooperative), *d.Attributes["isolation"].StringValue)
	half, _ := publishedDevice(t, m.api, half0)
	assert.Equal(t, string(gpu.IsolationHardware), *half.Attributes["isolation"].StringValue)

	a, b := nodetest.Allocate(t, m.api, "a", fraction0), nodetest.Allocate(t, m.api, "b", fraction0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	assert.Equal(t, []string{"a", "b"}, m.runningDaemons())
	assert.Contains(t, m.spec("a"), "CUDA_MPS_PIPE_DIRECTORY=")
	assert.Contains(t, m.spec("a"), m.config.mpsDir()+"/a/pipe")
	assert.NotContains(t, m.spec("a"), m.config.mpsDir()+"/b/pipe", "nobody sees another's")
	var text bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &text, false))
	assert.Contains(t, text.String(), "claim team/claim-a, pod pod-a (0.5, MPS daemon a)\n")
	assert.Contains(t, text.String(), "claim team/claim-b, pod pod-b (0.5, MPS daemon b)\n")
	require.Empty(t, k.unprepare(a))
	assert.Equal(t, []string{"b"}, m.runningDaemons())
	require.Empty(t, k.unprepare(b))
	m.nothingHeld()
}

// A restart of the plugin leaves daemons and their clients alone.
func TestDaemonOutlivesThePlugin(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	a := nodetest.Allocate(t, m.api, "a", fraction0)
	k.mustPrepare(a)
	before := m.daemonPID("a")
	stop()
	k, _ = m.start()
	k.mustPrepare(a)
	assert.Equal(t, before, m.daemonPID("a"))
	require.Empty(t, k.unprepare(a))
	m.nothingHeld()
}

// A daemon that dies is told of where people look, starts again by itself, and is
// well again when it answers.
func TestDaemonDies(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	a, b := nodetest.Allocate(t, m.api, "a", fraction0), nodetest.Allocate(t, m.api, "b", fraction0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	stream, err := drahealth.NewDRAResourceHealthClient(k.conn).NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	m.awaitHealth(stream, fraction0, drahealth.HealthStatus_HEALTHY)

	neighbor := m.daemonPID("b")
	require.NoError(t, syscall.Kill(m.daemonPID("a"), syscall.SIGKILL), "as the kernel does when memory is short")
	assert.Equal(t, kubelet.DaemonDied, m.awaitHealth(stream, fraction0, drahealth.HealthStatus_UNHEALTHY))
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "MPSDaemonDied", ""), "Nothing limits the memory of the shares of claim team/claim-a, pod pod-a: ")
	nodetest.AwaitEventOn(t, m.api, "Pod", "pod-a", "MPSDaemonDied", "share of claim claim-a")
	nodetest.AwaitEvent(t, m.api, "MPSDaemonRestarted", "MPS daemon a was restarted; it serves claim team/claim-a, pod pod-a")
	m.awaitHealth(stream, fraction0, drahealth.HealthStatus_HEALTHY)
	assert.Equal(t, neighbor, m.daemonPID("b"))
	require.Empty(t, k.unprepare(a))
	require.Empty(t, k.unprepare(b))
	m.nothingHeld()
}

// awaitHealth waits for what the stream says of a device and returns the message.
func (m *machine) awaitHealth(stream drahealth.DRAResourceHealth_NodeWatchResourcesClient, device string, want drahealth.HealthStatus) string {
	m.t.Helper()
	for {
		answer, err := stream.Recv()
		require.NoError(m.t, err)
		for _, d := range answer.Devices {
			if d.Device.DeviceName == device && d.Health == want {
				return d.GetMessage()
			}
		}
	}
}

// Without MPS there are shares all the same; what they lack is told.
func TestNoMPS(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	note := nodetest.AwaitEvent(t, m.api, "SharesNotLimited", "")
	assert.Contains(t, note, "isolation is none")
	assert.Contains(t, note, "nvidia-cuda-mps-control")
	k.works(nodetest.Allocate(t, m.api, "a", fraction0))
	assert.Empty(t, m.runningDaemons())
}

// MPS whose daemon fails at its start is as none, until it works.
func TestMPSThatFailsAtItsStart(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	require.NoError(t, os.Mkdir(m.simulated.Root, 0o750))
	m.faults(nvdriver.Faults{MPS: &nvtools.Faults{Start: "fail"}})
	m.start()
	awaitDevices(t, m.api, false, untainted)
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "SharesNotLimited", ""), "simulated failure", "the daemon's words")
	m.faults(nvdriver.Faults{})
	nodetest.AwaitEvent(t, m.api, "SharesLimited", "MPS daemons work on this node now")
}

// With the strategy MPS nothing works without it, and the claim says so. It is counted.
func TestStrategyMPSWithoutMPS(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.HTTPAddress = freeAddress(t)
	m.profile("{sharing: {strategy: MPS}}")
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	a := nodetest.Allocate(t, m.api, "a", fraction0)
	assert.Contains(t, k.refused(a), "is shared by MPS, which does not work on this node")
	failed := nodetest.AwaitStatus(t, m.api, a, metav1.ConditionFalse)
	assert.Equal(t, "share-0a", *failed.ShareID)
	m.nothingHeld()
	_, body := get(t, "http://"+m.config.HTTPAddress+"/metrics")
	assert.Contains(t, body, `operation="prepare",result="Failed"} 1`)
}

// With the strategy MPS one daemon serves all claims of a GPU.
func TestStrategyMPS(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {strategy: MPS}}")
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	a, b := nodetest.Allocate(t, m.api, "a", fraction0), nodetest.Allocate(t, m.api, "b", fraction0)
	k.mustPrepare(a)
	k.mustPrepare(b)
	assert.Equal(t, []string{card0}, m.runningDaemons())
	require.Empty(t, k.unprepare(a))
	assert.Equal(t, []string{card0}, m.runningDaemons())
	require.Empty(t, k.unprepare(b))
	m.nothingHeld()
}

// A daemon of which no claim knows ends with the start of the plugin, and none is
// left when the plugin ends for good.
func TestStrayDaemons(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	_, stop := m.start() // installs the driver
	stop()
	s := m.config.supervisor(t.Context(), filepath.Join(m.simulated.Root, "driver"))
	stray := mps.Spec{ID: "stray", Devices: []mps.Device{{UUID: "GPU-0"}}}
	require.NoError(t, s.Start(t.Context(), stray))
	require.NoError(t, s.Wait(t.Context(), stray.ID))
	_, stop = m.start()
	nodetest.AwaitEvent(t, m.api, "StrayDaemonStopped", "stray")
	require.Eventually(t, func() bool { return len(m.runningDaemons()) == 0 }, nodetest.Patience, nodetest.Tick)
	stop()

	require.NoError(t, s.Start(t.Context(), stray))
	require.NoError(t, m.config.leave(nodetest.Quiet(t.Context())))
	assert.NoDirExists(t, m.config.mpsDir())
	assert.NoDirExists(t, m.config.DataDir())
}

// A claim whose daemon does not start is refused with the reason, and the next one
// works when it does.
func TestDaemonDoesNotStart(t *testing.T) {
	m := newMPSMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	m.faults(nvdriver.Faults{MPS: &nvtools.Faults{Start: "fail"}})
	a := nodetest.Allocate(t, m.api, "a", fraction0)
	assert.Contains(t, k.refused(a), "MPS daemon")
	m.nothingHeld()
	m.faults(nvdriver.Faults{})
	k.works(a)
}
