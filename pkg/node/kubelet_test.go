package node

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// The GPUs of the simulated machine of these tests.
const (
	pci0  = "0000:1b:00.0"
	card0 = "gpu-0000-1b-00-0"
	card1 = "gpu-0000-43-00-0"
)

// twoGPUs has no delays, so that tests wait for nothing but themselves.
const twoGPUs = `
delays: {createGPUInstance: 0s, createComputeInstance: 0s, destroyComputeInstance: 0s, destroyGPUInstance: 0s, setMigMode: 0s}
gpus:
- {model: H100-80GB, count: 2, pci: ["0000:1b:00.0", "0000:43:00.0"]}
`

// machine is a node with simulated GPUs on which a plugin can be run, and the
// kubelet of that node.
type machine struct {
	t      *testing.T
	config *Config
	// simulated is the machine that the plugin runs on.
	simulated *simulator.Machine
	api       *fake.Clientset
}

func newMachine(t *testing.T, api *fake.Clientset) *machine {
	t.Helper()
	t.Parallel() // each has folders of its own, and they mostly wait
	dir := memory.SocketDir(t)
	m := &machine{t: t, api: api, config: &Config{
		LookInterval: 200 * time.Millisecond,
		NodeName:     nodetest.NodeName,
		KubeletDir:   filepath.Join(dir, "kubelet"),
		CDIDir:       filepath.Join(dir, "cdi"),
		HostRoot:     "/",
		HTTPAddress:  "127.0.0.1:0",
		MPSDir:       filepath.Join(dir, "mps"),
		// As if there were no MPS, in less time than this program takes to find out.
		MPSLauncher: []string{"/bin/sh", "-c", "exit 4"},
		GPUNodes:    withoutDefinitions().GPUNodes(),
		// Other tests' processes do not matter here.
		procRoot: nodetest.FakeProc(t, nil),
	}}
	m.simulated = &simulator.Machine{
		Inventory: "two", InventoryDir: filepath.Join(dir, "inventories"), Root: memory.TempDir(t), Node: nodetest.NodeName,
		Library: nvdriver.LibraryForTest(t.Name()),
		NVIDIA:  nvidia.Vendor{HostRoot: "/", CDIHook: filepath.Join(dir, "hook"), CDIHookPath: m.hookPath()},
		AMD:     amd.Vendor{HostRoot: "/", Marker: filepath.Join(m.config.DataDir(), "amdgpu-is-out"), BusyPatience: 300 * time.Millisecond},
	}
	m.config.Machine = m.simulated.Hardware()
	require.NoError(t, os.MkdirAll(filepath.Join(m.config.KubeletDir, "plugins_registry"), 0o750))
	m.write("hook", "#!/bin/sh\n")
	m.write("inventories/two.yaml", twoGPUs)
	return m
}

// withoutDefinitions is an API server that does not know the kinds of Tranche.
func withoutDefinitions() *clientfake.Client {
	c := clientfake.New()
	undefine(c, new(atomic.Bool))
	return c
}

// undefine has an API server not know the kinds of Tranche until they are defined.
func undefine(c *clientfake.Client, defined *atomic.Bool) {
	notFound := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	clientfake.React(&c.Fake, "*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return !defined.Load(), nil, notFound })
	c.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) { return !defined.Load(), nil, notFound })
}

// hookPath is where the plugin puts the program for CDI hooks.
func (m *machine) hookPath() string { return filepath.Join(m.config.DataDir(), "nvidia-cdi-hook") }

// path is that of a file below the machine's folder.
func (m *machine) path(name string) string {
	return filepath.Join(filepath.Dir(m.config.CDIDir), name)
}

// write writes a file below the machine's folder.
func (m *machine) write(name, text string) {
	m.t.Helper()
	path := m.path(name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // one of them is a program
}

// run runs the plugin to its end, for runs that fail.
func (m *machine) run() error {
	ctx, cancel := context.WithTimeout(nodetest.Quiet(m.t.Context()), nodetest.Patience)
	defer cancel()
	return Run(ctx, m.config, m.api)
}

// start runs the plugin and registers it. stop ends it and waits.
func (m *machine) start() (k *fakeKubelet, stop func()) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(nodetest.Quiet(context.Background()))
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, m.config, m.api) }()
	stop = func() {
		if cancel == nil {
			return
		}
		cancel()
		cancel = nil
		select {
		case err := <-ended:
			assert.NoError(m.t, err, "the plugin ended with an error")
		case <-time.After(nodetest.Patience):
			assert.Fail(m.t, "the plugin does not end")
		}
	}
	m.t.Cleanup(stop)
	require.Eventually(m.t, func() bool { return m.hasSocket() || len(ended) > 0 }, nodetest.Patience, nodetest.Tick, "the plugin makes no socket")
	require.Empty(m.t, ended, "the plugin ended at its start")
	return m.register(), stop
}

func (m *machine) hasSocket() bool {
	_, err := os.Stat(m.registrySocket())
	return err == nil
}

// register does what the kubelet does when it finds the plugin's socket.
func (m *machine) register() *fakeKubelet {
	m.t.Helper()
	require.Eventually(m.t, m.hasSocket, nodetest.Patience, nodetest.Tick, "the plugin makes no socket")
	k := &fakeKubelet{m: m, registration: registerapi.NewRegistrationClient(dial(m.t, m.registrySocket()))}
	var info *registerapi.PluginInfo
	require.Eventually(m.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var err error
		info, err = k.registration.GetInfo(ctx, &registerapi.InfoRequest{})
		return err == nil
	}, nodetest.Patience, nodetest.Tick, "the plugin does not answer")
	require.Equal(m.t, names.DriverName, info.Name)
	require.Equal(m.t, registerapi.DRAPlugin, info.Type)
	k.services = info.SupportedVersions
	k.conn = dial(m.t, info.Endpoint)
	k.dra = drapb.NewDRAPluginClient(k.conn)
	k.registered()
	return k
}

func (m *machine) registrySocket() string {
	name := names.DriverName
	if uid := m.config.PodUID; uid != "" {
		name += "-" + string(uid)
	}
	return filepath.Join(m.config.KubeletDir, "plugins_registry", name+"-reg.sock")
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	// gRPC would wait a second and more before it looks for the socket again.
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: nodetest.Tick, Multiplier: 1, MaxDelay: nodetest.Tick}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(soon))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kubelet speaks to a running plugin.
type fakeKubelet struct {
	m            *machine
	registration registerapi.RegistrationClient
	conn         *grpc.ClientConn
	dra          drapb.DRAPluginClient
	services     []string
}

func (k *fakeKubelet) registered() {
	k.m.t.Helper()
	_, err := k.registration.NotifyRegistrationStatus(context.Background(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(k.m.t, err)
}

// prepare asks for claims and returns what is wrong with each.
func (k *fakeKubelet) prepare(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	k.m.t.Helper()
	request := &drapb.NodePrepareResourcesRequest{}
	for _, c := range claims {
		request.Claims = append(request.Claims, refTo(c))
	}
	response, err := k.dra.NodePrepareResources(k.m.t.Context(), request)
	require.NoError(k.m.t, err)
	require.Len(k.m.t, response.Claims, len(claims))
	return response.Claims
}

func refTo(c *resourceapi.ResourceClaim) *drapb.Claim {
	return &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
}

// mustPrepare prepares a claim and returns the CDI ids of its devices, without
// those of the metadata, which the helper library adds.
func (k *fakeKubelet) mustPrepare(c *resourceapi.ResourceClaim) []string {
	k.m.t.Helper()
	answer := k.prepare(c)[string(c.UID)]
	require.Empty(k.m.t, answer.Error)
	var ids []string
	for _, d := range answer.Devices {
		ids = append(ids, d.CdiDeviceIds...)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return strings.Contains(id, "/metadata=") })
}

// refused prepares a claim that is refused and returns the message.
func (k *fakeKubelet) refused(c *resourceapi.ResourceClaim) string {
	k.m.t.Helper()
	answer := k.prepare(c)[string(c.UID)]
	require.NotEmpty(k.m.t, answer.Error)
	assert.Empty(k.m.t, answer.Devices)
	return answer.Error
}

// unprepare releases a claim and returns what is wrong.
func (k *fakeKubelet) unprepare(c *resourceapi.ResourceClaim) string {
	k.m.t.Helper()
	response, err := k.dra.NodeUnprepareResources(k.m.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
	require.NoError(k.m.t, err)
	return response.Claims[string(c.UID)].Error
}

// works checks that a claim can be prepared and released, and that nothing is
// left of it or anything before it.
func (k *fakeKubelet) works(c *resourceapi.ResourceClaim) {
	k.m.t.Helper()
	require.NotEmpty(k.m.t, k.mustPrepare(c))
	require.Empty(k.m.t, k.unprepare(c))
	k.m.nothingHeld()
}

// nothingHeld checks that neither the GPUs nor the folders know of a claim.
func (m *machine) nothingHeld() {
	m.t.Helper()
	require.Empty(m.t, m.partitions())
	require.Empty(m.t, m.runningDaemons())
	require.Empty(m.t, m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"))
	require.Empty(m.t, m.files(m.config.CDIDir, "*.json"))
}

func (m *machine) files(dir, pattern string) []string {
	m.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(m.t, err)
	return found
}

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

// inventory is the machine's hardware.
func (m *machine) inventory() *models.Inventory {
	m.t.Helper()
	inv, err := models.LoadInventory("two", m.simulated.InventoryDir)
	require.NoError(m.t, err)
	return inv
}

// partitions are those that the simulated NVIDIA GPUs have, by what the simulator
// keeps: neither the plugin nor its driver is asked.
// Those of AMD GPUs come and go with the mode, which stays.
func (m *machine) partitions() []string {
	m.t.Helper()
	inv := m.inventory()
	if len(inv.GPUs) == 0 {
		return nil
	}
	state, err := nvstate.Store(m.simulated.Root).Read()
	require.NoError(m.t, err)
	if state == nil {
		return nil // nobody has started the machine yet
	}
	var names []string
	for i, g := range inv.GPUs {
		require.Equal(m.t, g.PCI, state.GPUs[i].PCI)
		for _, there := range state.GPUs[i].Instances {
			profiles := g.Model.Profiles
			of := slices.IndexFunc(profiles, func(p models.Profile) bool { return p.ID == there.Profile })
			names = append(names, gpu.Placement{GPU: g.PCI, Type: gpu.TypeMIG, Profile: profiles[of].Name, Start: there.Start}.Name())
		}
	}
	slices.Sort(names)
	return names
}

// faults makes the simulated GPUs fail from now on.
func (m *machine) faults(f nvdriver.Faults) {
	m.t.Helper()
	require.NoError(m.t, nvdriver.SetFaults(m.simulated.Root, f))
}
