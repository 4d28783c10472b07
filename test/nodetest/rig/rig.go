// Package rig puts parts of the kubelet plugin together on a simulated machine, for the tests of the
// packages that use several of them.
package rig

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The GPUs of the machine.
const (
	PCI0, PCI1 = "0000:1b:00.0", "0000:43:00.0"
	GPU0, GPU1 = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
)

const twoGPUs = `
delays: {createGPUInstance: 0s, createComputeInstance: 0s, destroyComputeInstance: 0s, destroyGPUInstance: 0s, setMigMode: 0s}
gpus:
- {model: %s, count: 2, pci: ["0000:1b:00.0", "0000:43:00.0"]}
`

// Programs of the driver are run by this program, which starts itself for that. None runs here.
func init() {
	if len(os.Args) > 1 && os.Args[1] == mps.LaunchCommand {
		os.Exit(1)
	}
}

// Rig is a node with two GPUs. No other goroutine than those that the test starts works on it, but for
// Publish.
type Rig struct {
	T         *testing.T
	Context   context.Context
	API       *fake.Clientset
	Node      *corev1.Node
	Simulated *simulator.Machine
	Machine   hardware.Machine
	Records   *ledger.Ledger
	// CDIDir has the files for the container runtime.
	CDIDir string

	Drivers   *inventory.Drivers
	Roster    *inventory.Roster
	GPUs      *inventory.GPUs
	Applied   *partition.State
	Claims    *claim.Manager
	Profile   *partition.Node
	Sharing   *share.State
	Publisher *publisher.Publisher
	Events    *telemetry.Events
	Metrics   *telemetry.Metrics

	// HeldShares are those that claims hold of each GPU, for Sharing.
	HeldShares []gpu.Placement
	// Problems has the GPUs that do not answer, by PCI address.
	Problems map[string]gpu.Problem
	// During, if it is set, is called by Change before what changes the GPUs.
	During func()
	// Changes counts the calls of Change.
	Changes int
}

// New returns a node with two GPUs of a model, with an open driver, and nothing published.
func New(t *testing.T, model string, objects ...runtime.Object) *Rig {
	t.Helper()
	dir := memory.TempDir(t)
	inventories := filepath.Join(dir, "inventories")
	require.NoError(t, os.MkdirAll(inventories, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(inventories, "two.yaml"), fmt.Appendf(nil, twoGPUs, model), 0o600))
	r := &Rig{T: t, API: nodetest.NewAPI(objects...), CDIDir: filepath.Join(dir, "cdi"), GPUs: &inventory.GPUs{}}
	r.Simulated = &simulator.Machine{
		Inventory: "two", InventoryDir: inventories, Root: filepath.Join(dir, "machine"), Node: nodetest.NodeName,
		Library: nvdriver.LibraryForTest(t.Name()), NVIDIA: nvidia.Vendor{HostRoot: "/", CDIHook: "/bin/true", CDIHookPath: filepath.Join(dir, "hook")},
	}
	require.NoError(t, os.MkdirAll(r.Simulated.Root, 0o700))
	r.Machine = r.Simulated.Hardware()
	ctx, cancel := context.WithCancel(nodetest.Quiet(context.Background()))
	r.Context = ctx

	var err error
	r.Node, err = r.API.CoreV1().Nodes().Get(ctx, nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	r.Events, err = telemetry.OpenEvents(ctx, r.API, r.Node)
	require.NoError(t, err)
	r.Records, _, err = ledger.Open(filepath.Join(dir, "claims"))
	require.NoError(t, err)
	r.Metrics = telemetry.NewMetrics(nodetest.NodeName, r.Records.List)
	r.Roster, err = inventory.OpenRoster(filepath.Join(dir, "gpus.json"))
	require.NoError(t, err)
	r.Applied, err = partition.OpenState(filepath.Join(dir, "profile.json"))
	require.NoError(t, err)
	r.Sharing, err = share.OpenState(filepath.Join(dir, "sharing.json"), share.StateConfig{
		Events: r.Events, HeldBy: func(string) string { return "" },
		Held: func(context.Context, string) ([]gpu.Placement, error) { return r.HeldShares, nil },
	})
	require.NoError(t, err)
	vendors, err := r.Machine.Vendors()
	require.NoError(t, err)
	r.Drivers = inventory.NewDrivers(inventory.DriversConfig{
		Vendors: vendors, Upgrades: func() map[gpu.Vendor]string { return nil }, Roster: r.Roster, Events: r.Events, Stop: func(err error) { require.NoError(t, err) },
	})
	require.Len(t, r.Drivers.Open(ctx), 1)
	files, err := cdi.Open(r.CDIDir)
	require.NoError(t, err)
	r.Claims = claim.NewManager(claim.Config{
		Node: nodetest.NodeName, Driver: r.Drivers.Of, Ledger: r.Records, CDI: files, GPUs: r.Roster.All, LoadID: r.Drivers.LoadID, Static: r.Applied.Static,
		LockDir: t.TempDir(),
	})
	r.Profile = partition.New(partition.Config{State: r.Applied, GPUs: r.Roster.All, Lost: r.Roster.Lost, Driver: r.Drivers.Of, Claims: r.Claims})
	r.Publisher = publisher.New(publisher.Config{
		Node: nodetest.NodeName, Client: r.API, GPUs: r.GPUs, Drivers: r.Drivers, Ledger: r.Records, Applied: r.Applied, Sharing: r.Sharing, Events: r.Events, Metrics: r.Metrics,
	})
	t.Cleanup(func() {
		cancel()
		r.Events.Close()
		require.NoError(t, r.Drivers.Close(context.Background()))
	})
	r.Look(ctx)
	return r
}

// Look reads which GPUs there are.
func (r *Rig) Look(ctx context.Context) {
	r.T.Helper()
	l := r.Drivers.List(ctx)
	l.Found = slices.DeleteFunc(l.Found, func(g gpu.GPU) bool { return r.Problems[g.PCIAddress].Message != "" })
	maps.Copy(l.Problems, r.Problems)
	r.Roster.Update(ctx, l.Found, l.Problems, l.Told, r.Machine.BootID())
	r.GPUs.Update(l.Found, l.Problems, nil)
}

// Change implements follow.Monitor.
func (r *Rig) Change(ctx context.Context, do func()) {
	r.Changes++
	if r.During != nil {
		r.During()
	}
	do()
	r.Look(context.WithoutCancel(ctx))
}

// Publish has the publisher take over. Its slices are written in the background, as the kubelet's helper
// does it.
func (r *Rig) Publish() {
	r.T.Helper()
	h := publisher.NewHandover(r.Publisher)
	client := h.Client(r.API)
	wanted := make(chan resourceslice.DriverResources, 16)
	h.Begin(r.Publisher, func(_ context.Context, all resourceslice.DriverResources) error {
		wanted <- all
		return nil
	})
	go func() {
		for {
			select {
			case all := <-wanted:
				write(r.Context, client, all)
			case <-r.Context.Done():
				return
			}
		}
	}()
	r.T.Cleanup(h.Stop)
	r.Publisher.SetOwners(r.Context, nil)
	r.Publisher.TakeOver(r.Context)
	r.Await("the slices are published", func() bool {
		published, err := r.Publisher.Stored(r.Context)
		return err == nil && r.Publisher.Matches(published)
	})
}

// Await waits until a condition holds.
func (r *Rig) Await(what string, holds func() bool) {
	r.T.Helper()
	require.Eventually(r.T, holds, nodetest.Patience, time.Millisecond, what)
}

// write writes the slices of the node. What is refused is left out.
func write(ctx context.Context, client kubernetes.Interface, all resourceslice.DriverResources) {
	api := client.ResourceV1().ResourceSlices()
	pool := names.PoolName(nodetest.NodeName)
	for i, s := range all.Pools[pool].Slices {
		name := nodetest.NodeName
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", i), UID: "uid"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: names.DriverName, NodeName: &name, Devices: s.Devices, SharedCounters: s.SharedCounters,
			Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(all.Pools[pool].Slices))},
		}}
		if _, err := api.Update(ctx, slice, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
			_, _ = api.Create(ctx, slice, metav1.CreateOptions{})
		}
	}
}

// Taints has the taints of each published device that a switch or a defragmentation asks for, as key=value without
// the driver's domain.
func (r *Rig) Taints() map[string][]string {
	r.T.Helper()
	published, err := r.Publisher.Stored(r.Context)
	require.NoError(r.T, err)
	all := map[string][]string{}
	for _, s := range published {
		for _, d := range s.Spec.Devices {
			for _, taint := range d.Taints {
				if taint.Key != names.TaintSwitching && taint.Key != names.TaintReserved {
					continue
				}
				all[d.Name] = append(all[d.Name], taint.Key[len(names.DriverName)+1:]+"="+taint.Value)
			}
		}
	}
	return all
}

// AwaitNoTaints waits until no published device has such a taint.
func (r *Rig) AwaitNoTaints() {
	r.T.Helper()
	r.Await("devices stay tainted", func() bool { return len(r.Taints()) == 0 })
}

// Partitions names those that exist.
func (r *Rig) Partitions() (all []string) {
	r.T.Helper()
	r.each(func(_ hardware.Driver, p gpu.Partition) { all = append(all, p.Name()) })
	return all
}

// RemovePartitions removes them, as a reload of the driver does.
func (r *Rig) RemovePartitions() {
	r.T.Helper()
	r.each(func(driver hardware.Driver, p gpu.Partition) {
		require.NoError(r.T, driver.Destroy(r.Context, p.Placement()))
	})
}

// each calls do for each partition.
func (r *Rig) each(do func(hardware.Driver, gpu.Partition)) {
	r.T.Helper()
	for _, g := range r.Roster.All() {
		driver, err := r.Drivers.Of(g.PCIAddress)
		require.NoError(r.T, err)
		live, err := driver.Live(r.Context, g.PCIAddress)
		require.NoError(r.T, err)
		for _, p := range live {
			do(driver, p)
		}
	}
}

// SetFaults makes calls of the driver fail.
func (r *Rig) SetFaults(faults nvdriver.Faults) {
	r.T.Helper()
	require.NoError(r.T, nvdriver.SetFaults(r.Simulated.Root, faults))
}
