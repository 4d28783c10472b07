package node

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// childEnv makes the test binary be a plugin, with a config and one claim.
const childEnv = "TRANCHE_TEST_PLUGIN"

type child struct {
	Config    *Config
	Simulated *simulator.Machine
	Claim     *resourceapi.ResourceClaim
	// DieBefore is the number of the step, of all that the plugin takes for
	// claims, before which it kills itself; none if negative.
	DieBefore int
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mps.LaunchCommand {
		os.Exit(mps.Launch(os.Args[2:]))
	}
	if text := os.Getenv(childEnv); text != "" {
		runChild(text)
	}
	flag.Parse()
	if !isSet("test.parallel") {
		// The tests wait for each other's processes more than they work.
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	_ = os.RemoveAll(toolsDir)
	os.Exit(code)
}

// isSet reports whether a flag was given.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func runChild(text string) {
	var c child
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		c.Config.Machine = c.Simulated.Hardware()
		c.Config.beforeStep, c.Config.GPUNodes = dieBefore(c.DieBefore), withoutDefinitions().GPUNodes()
		err = Run(nodetest.Quiet(context.Background()), c.Config, nodetest.NewAPI(c.Claim))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// The plugin is a process of its own, and dies by SIGKILL while the hardware
// is at work for a claim.
func TestPluginKilledDuringPrepare(t *testing.T) {
	for _, call := range []string{"SetMigMode", "CreateGpuInstance", "CreateComputeInstance", "GetMigDeviceHandleByIndex"} {
		t.Run(call, func(t *testing.T) {
			m := newMachine(t, nodetest.NewAPI())
			// An orderly run first: the simulated machine is there for faults.
			_, stop := m.start()
			stop()
			c := nodetest.Allocate(t, m.api, "a", small0)
			kill := m.startChild(c)
			k := m.register()
			m.hangIn(call)
			answered := make(chan error, 1)
			go func() {
				_, err := k.dra.NodePrepareResources(context.Background(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
				answered <- err
			}()
			m.awaitHang()
			kill()
			require.Error(t, <-answered)
			m.faults(nvdriver.Faults{})

			k, _ = m.start()
			assert.Equal(t, []string{"gpu.tranche.dev/claim=" + small0 + "_a"}, k.mustPrepare(c), "the next try works")
			assert.Equal(t, []string{small0}, m.partitions())
			require.Empty(t, k.unprepare(c))
			k.works(nodetest.Allocate(t, m.api, "b", half0))
		})
	}
}

// The claim is gone when the plugin comes back: nobody asks for it again.
func TestPluginKilledDuringPrepareAndClaimGone(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, stop := m.start()
	stop()
	c := nodetest.ClaimOf("a", small0) // known to the child's API server only
	kill := m.startChild(c)
	k := m.register()
	m.hangIn("CreateComputeInstance")
	go func() {
		_, _ = k.dra.NodePrepareResources(context.Background(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
	}()
	m.awaitHang()
	kill()
	m.faults(nvdriver.Faults{})
	require.Equal(t, []string{small0}, m.partitions(), "a GPU instance without compute instance")

	k, _ = m.start()
	nodetest.AwaitEvent(t, m.api, "LeftoverReleased", small0)
	require.Eventually(t, func() bool { return len(m.partitions()) == 0 }, nodetest.Patience, nodetest.Tick)
	k.works(nodetest.Allocate(t, m.api, "b", half0))
}

// startChild runs the plugin as a process; kill ends it with SIGKILL.
func (m *machine) startChild(c *resourceapi.ResourceClaim) (kill func()) {
	m.t.Helper()
	cmd := m.startProcess(child{Claim: c, DieBefore: -1})
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	m.t.Cleanup(kill)
	return kill
}

func (m *machine) startProcess(c child) *exec.Cmd {
	m.t.Helper()
	c.Config, c.Simulated = m.config, m.simulated
	text, err := json.Marshal(c)
	require.NoError(m.t, err)
	program, err := os.Executable()
	require.NoError(m.t, err)
	cmd := exec.Command(program) //nolint:gosec,noctx // it is this very program, and is killed
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	require.NoError(m.t, cmd.Start())
	return cmd
}

// awaitHang waits until the plugin hangs in the call that hang names: the
// simulator counts, in its state, how often a fault came true.
func (m *machine) awaitHang() { m.awaitHangIn("state.json") }

func (m *machine) awaitHangIn(stateFile string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		data, err := os.ReadFile(filepath.Join(m.simulated.Root, stateFile))
		require.NoError(m.t, err)
		// By the key of the fault in the one simulator, by its place in the other.
		var state struct {
			FiredFaults map[string]int `json:"firedFaults"`
			FaultCounts []int          `json:"faultCounts"`
		}
		require.NoError(m.t, json.Unmarshal(data, &state))
		counts := slices.Concat(state.FaultCounts, slices.Collect(maps.Values(state.FiredFaults)))
		return slices.Equal(counts, []int{1})
	}, nodetest.Patience, nodetest.Tick, "the call does not come")
}

// hangIn makes the next call of a name hang.
func (m *machine) hangIn(call string) {
	m.t.Helper()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: call, GPU: pci0, Times: 1, Hang: true}}})
}
