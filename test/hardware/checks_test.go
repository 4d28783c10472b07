package hardware

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
)

const node = "node"

func gpusOf(t *testing.T, m *machine) []gpu.GPU {
	t.Helper()
	gpus, err := m.Inventory(m.ctx(t))
	require.NoError(t, err)
	require.NotEmpty(t, gpus, "NVML lists no GPU")
	return gpus
}

// checkInventory: every GPU tells who it is, and its placements and counters
// fit each other.
func checkInventory(t *testing.T, m *machine) {
	names := map[string]bool{}
	for _, g := range gpusOf(t, m) {
		t.Logf("%s: %s, %s, driver %s, %s, PCIe root %q, %d placements, counters %v",
			g.Name(), g.ProductName, g.Architecture, g.DriverVersion, g.UUID, g.PCIeRoot, len(g.Placements), g.Counters)
		address, err := gpu.NormalizePCIAddress(g.PCIAddress)
		require.NoError(t, err)
		assert.Equal(t, address, g.PCIAddress)
		assert.Equal(t, gpu.NVIDIA, g.Vendor)
		assert.True(t, strings.HasPrefix(g.UUID, "GPU-"), g.UUID)
		assert.NotEmpty(t, g.ProductName)
		assert.NotEmpty(t, g.Architecture)
		assert.NotEmpty(t, g.DriverVersion)
		require.NotEmpty(t, g.Counters)
		require.NotEmpty(t, g.Placements, "the GPU offers nothing")
		for _, p := range g.Placements {
			assert.False(t, names[p.Name()], "%s is there twice", p.Name())
			names[p.Name()] = true
			checkPlacement(t, &g, p)
		}
	}
}

func checkPlacement(t *testing.T, g *gpu.GPU, p gpu.Placement) {
	t.Helper()
	assert.Empty(t, validation.IsDNS1123Label(p.Name()), p.Name())
	assert.Equal(t, g.PCIAddress, p.GPU)
	checkAmounts(t, g, p)
	assert.Equal(t, gpu.IsolationHardware, p.Isolation, p.Name())
	if p.Type == gpu.TypeGPU {
		assert.Equal(t, g.Counters[names.CounterMemory], p.Consumes[names.CounterMemory], "the whole GPU takes all memory, and so excludes everything else")
		return
	}
	assert.Equal(t, gpu.TypeMIG, p.Type)
	assert.Positive(t, p.Size, p.Name())
	assert.Positive(t, p.ComputeUnits, p.Name())
	if p.Consumes[names.CounterMemory] == g.Counters[names.CounterMemory] {
		return // it has the GPU to itself, and needs no other counter
	}
	for slice := p.Start; slice < p.Start+p.Size; slice++ {
		counter := fmt.Sprintf("memory-slice-%d", slice)
		if _, ok := g.Counters[counter]; ok {
			assert.EqualValues(t, 1, p.Consumes[counter], "%s, slice %d", p.Name(), slice)
		}
	}
}

// checkAmounts: a placement has memory, and takes no more of the GPU than there is.
func checkAmounts(t *testing.T, g *gpu.GPU, p gpu.Placement) {
	t.Helper()
	assert.Positive(t, p.Memory, p.Name())
	assert.NotEmpty(t, p.Consumes, "%s takes nothing of the GPU", p.Name())
	for name, n := range p.Consumes {
		assert.LessOrEqual(t, n, g.Counters[name], "%s takes more %s than there is", p.Name(), name)
	}
}

// published is what the node would publish.
func published(t *testing.T, gpus []gpu.GPU) []resourceapi.ResourceSlice {
	t.Helper()
	var all []publish.GPU
	for _, g := range gpus {
		all = append(all, publish.GPU{GPU: g})
	}
	slices, errs := publish.Slices(all)
	require.Empty(t, errs)
	return publish.Objects(names.DriverName, node, slices)
}

// checkSlices: the slices pass our own checks and the part of the API server's
// validation that is in its client library.
func checkSlices(t *testing.T, m *machine) { validate(t, published(t, gpusOf(t, m))) }

func validate(t *testing.T, all []resourceapi.ResourceSlice) {
	t.Helper()
	size := 0
	// The options are feature gates; we use no field of this one.
	create := operation.Operation{Type: operation.Create, Options: map[string]bool{"DRAPartitionableDevicesType": false}}
	for i := range all {
		problems := resourceapi.Validate_ResourceSliceSpec(t.Context(), create, field.NewPath("spec"), &all[i].Spec, nil)
		assert.Empty(t, problems, all[i].Name)
		assert.Empty(t, validation.IsDNS1123Subdomain(all[i].Name), all[i].Name)
		data, err := json.Marshal(all[i])
		require.NoError(t, err)
		size += len(data)
	}
	t.Logf("%d slices, %d bytes of JSON", len(all), size)
}

// checkScheduler: the scheduler's own allocator grants each device of an empty
// machine, and no second one of a GPU that is allocated whole.
func checkScheduler(t *testing.T, m *machine) {
	scheduler := schedulerOf(published(t, gpusOf(t, m)))
	for _, g := range gpusOf(t, m) {
		for _, placement := range slices.CompactFunc(slices.Clone(g.Placements), func(a, b gpu.Placement) bool { return a.Profile == b.Profile }) {
			request := allocator.Request("gpu", anyClass, 1)
			request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selects(&g, placement)}}}
			grant, err := scheduler.Allocate(m.ctx(t), node, allocator.Claim("claim", request))
			require.NoError(t, err)
			if !assert.NotNil(t, grant, "%s is not granted on an idle machine", placement.Name()) {
				continue
			}
			if placement.Type == gpu.TypeGPU {
				second, err := scheduler.Allocate(m.ctx(t), node, allocator.Claim("second", request))
				require.NoError(t, err)
				assert.Nil(t, second, "%s is granted twice", placement.Name())
			}
			scheduler.ReleaseAll()
		}
	}
}

// anyClass is a class of all our devices.
const anyClass = "any"

// schedulerOf is a scheduler that sees these slices.
func schedulerOf(objects []resourceapi.ResourceSlice) *allocator.Scheduler {
	class := &resourceapi.DeviceClass{}
	class.Name = anyClass
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", names.DriverName)}}}
	var seen []*resourceapi.ResourceSlice
	for i := range objects {
		seen = append(seen, &objects[i])
	}
	return allocator.New([]*resourceapi.DeviceClass{class}, seen)
}

// selects is a selector for the placements of a GPU with the profile of this one, or for
// the share.
func selects(g *gpu.GPU, p gpu.Placement) string {
	of := func(attribute, value string) string {
		return fmt.Sprintf("device.attributes[%q].?%s.orValue(\"\") == %q", names.DriverName, attribute, value)
	}
	switch {
	case p.Share != nil:
		return of(names.AttributeUUID, g.UUID) + " && " + of(names.AttributeShareUnit, string(p.Share.By))
	case p.Type == gpu.TypeGPU:
		return of(names.AttributeUUID, g.UUID) + " && " + of(names.AttributeType, string(p.Type))
	}
	return of(names.AttributeParentUUID, g.UUID) + " && " + of(names.AttributeProfile, p.Profile)
}

// checkCommonEdits: what every container gets is all there on the host.
func checkCommonEdits(t *testing.T, m *machine) {
	if !m.hasNodes {
		t.Skip("no device nodes can be made here: the test needs root")
	}
	edits, err := m.CommonEdits(m.ctx(t), nil)
	require.NoError(t, err)
	checkEdits(t, m, edits)
	assert.Contains(t, edits.Env, "NVIDIA_VISIBLE_DEVICES=void")
	for _, library := range []string{"/libcuda.so.", "/libnvidia-ml.so."} {
		assert.True(t, slices.ContainsFunc(edits.Mounts, func(m *cdispecs.Mount) bool { return strings.Contains(m.ContainerPath, library) }), "no %s is mounted", library)
	}
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		assert.True(t, hasNode(edits, path), "no %s", path)
	}
	t.Logf("%d mounts, %d device nodes, %d hooks", len(edits.Mounts), len(edits.DeviceNodes), len(edits.Hooks))
}

func hasNode(edits *cdispecs.ContainerEdits, path string) bool {
	return slices.ContainsFunc(edits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return n.Path == path })
}

// checkEdits: what the edits name is there.
func checkEdits(t *testing.T, m *machine, edits *cdispecs.ContainerEdits) {
	t.Helper()
	for _, mount := range edits.Mounts {
		_, err := os.Stat(mount.HostPath)
		assert.NoError(t, err, "mounted at %s", mount.ContainerPath)
	}
	for _, n := range edits.DeviceNodes {
		info, err := os.Stat(filepath.Join(m.devRoot, n.Path))
		if !assert.NoError(t, err) {
			continue
		}
		assert.NotZero(t, info.Mode()&os.ModeCharDevice, "%s is no device", n.Path)
	}
	for _, hook := range edits.Hooks {
		if m.hook != "" {
			assert.Equal(t, m.hook, hook.Path)
		}
	}
}

// checkDeviceEdits: every GPU without partitions and every partition that exists
// can be described to a container, in a file that the runtime reads.
func checkDeviceEdits(t *testing.T, m *machine) {
	if !m.hasNodes {
		t.Skip("no device nodes can be made here: the test needs root")
	}
	devices := devicesNow(t, m)
	if len(devices) == 0 {
		t.Skip("MIG mode is on and no partition exists: there is no device to describe")
	}
	common, err := m.CommonEdits(m.ctx(t), nil)
	require.NoError(t, err)
	folder, err := cdi.Open(t.TempDir())
	require.NoError(t, err)
	for _, d := range devices {
		checkEdits(t, m, d.Edits)
		nodes := 0
		for _, n := range d.Edits.DeviceNodes {
			if strings.HasPrefix(n.Path, "/dev/nvidia-caps/") {
				nodes++
			}
		}
		if strings.Contains(d.Name, "-mig-") {
			assert.Equal(t, 2, nodes, "capabilities of %s", d.Name)
		} else {
			assert.Zero(t, nodes, "capabilities of %s", d.Name)
		}
	}
	require.NoError(t, folder.Write("hardware-test", []byte("{}"), common, devices))
}

// devicesNow lists what could be given to a container without a change of the
// GPUs, with the edits for it.
func devicesNow(t *testing.T, m *machine) []cdi.Device {
	t.Helper()
	var devices []cdi.Device
	for _, g := range gpusOf(t, m) {
		live, err := m.Live(m.ctx(t), g.PCIAddress)
		require.NoError(t, err)
		for _, p := range g.Placements {
			exists := slices.ContainsFunc(live, func(l gpu.Partition) bool { return l.Complete && l.Is(p) })
			if p.Type == gpu.TypeGPU {
				exists = len(live) == 0
			}
			if !exists {
				continue
			}
			edits, err := m.Edits(m.ctx(t), p)
			require.NoError(t, err, p.Name())
			devices = append(devices, cdi.Device{Name: p.Name(), Edits: edits})
		}
	}
	return devices
}

func checkHealth(t *testing.T, m *machine) {
	for _, g := range gpusOf(t, m) {
		assert.NoError(t, m.CheckHealth(m.ctx(t), g.PCIAddress))
	}
}

func checkLoadID(t *testing.T, m *machine) {
	first, err := m.LoadID()
	require.NoError(t, err)
	assert.NotEmpty(t, first)
	t.Log(first)
	second, err := m.LoadID()
	require.NoError(t, err)
	assert.Equal(t, first, second)
}

// checkWatchHealth: events can be watched, a well machine has none, and the watch
// ends when it is told.
func checkWatchHealth(t *testing.T, m *machine) {
	watched := 3 * time.Second
	if m.simulated {
		watched = 300 * time.Millisecond
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	events, done := make(chan gpu.HealthEvent, 100), make(chan error, 1)
	go func() { done <- m.WatchHealth(ctx, func(e gpu.HealthEvent) { events <- e }) }()
	select {
	case err := <-done:
		require.NoError(t, err)
		t.Fatal("the watch ended before it was told")
	case e := <-events:
		assert.False(t, e.Fatal, e.Message)
	case <-time.After(watched):
	}
	stop()
	select {
	case err := <-done:
		assert.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the watch does not end")
	}
}
