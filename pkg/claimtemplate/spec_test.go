package claimtemplate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
)

// scheduler has a node of each inventory.
func scheduler(t *testing.T, inventories ...string) *allocator.Scheduler {
	t.Helper()
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	var slices []*resourceapi.ResourceSlice
	for _, name := range inventories {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		hardware := inv.Hardware(name)
		desired, err := profile.Unset().Resolve(hardware, nil)
		require.NoError(t, err)
		var gpus []publish.GPU
		for _, g := range hardware {
			shares, err := desired[g.PCIAddress].ShareDevices(&g, g.Vendor == gpu.NVIDIA)
			require.NoError(t, err)
			g.Placements = append(g.Placements, shares...)
			gpus = append(gpus, publish.GPU{GPU: g})
		}
		published, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		slices = append(slices, allocator.Slices(names.DriverName, name, published)...)
	}
	return allocator.New(classes, slices)
}

// What a name says is what the scheduler allocates, and on no other node.
func TestWhatTheSchedulerAllocates(t *testing.T) {
	const nvidia, amd = "h100x8", "mi300x8"
	for name, test := range map[string]struct {
		node    string
		devices int
	}{
		"tranche-fraction-500":                         {nvidia, 1},
		"tranche-memory-2000mi":                        {nvidia, 1},
		"tranche-memory-2000mi-compute-30":             {nvidia, 1},
		"tranche-fraction-500-x2":                      {nvidia, 2},
		"tranche-fraction-500.type-h100":               {nvidia, 1},
		"tranche-fraction-500.type-a100.type-h100":     {nvidia, 1},
		"tranche-fraction-500.type-nvidia-h100-80gb":   {nvidia, 1},
		"tranche-fraction-500.type-a100":               {"", 0},
		"tranche-fraction-500.nottype-a100":            {nvidia, 1},
		"tranche-fraction-500.nottype-a100.nottype-80": {"", 0},
		"tranche-fraction-500.uuid-gpu-0":              {"", 0},
		"tranche-fraction-500.notuuid-gpu-0":           {nvidia, 1},
		"tranche-fraction-500-mps":                     {"", 0}, // GPUs are shared by time-slicing
		"tranche-memory-90000mi":                       {"", 0},
		"tranche-gpu-x8":                               {nvidia, 8},
		"tranche-gpu-x9":                               {"", 0},
		"tranche-amd-memory-4000mi":                    {amd, 1},
		"tranche-amd-gpu.type-mi300x":                  {amd, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(name)
			require.NoError(t, err)
			for _, node := range []string{nvidia, amd} {
				claim := allocator.Claim("claim")
				claim.Spec = r.Spec()
				grant, err := scheduler(t, nvidia, amd).Allocate(t.Context(), node, claim)
				require.NoError(t, err)
				if node != test.node {
					assert.Nil(t, grant)
					continue
				}
				require.NotNil(t, grant)
				gpus := map[string]bool{}
				for _, d := range grant.Devices() {
					gpus[gpu.OfDevice(d)] = true
				}
				assert.Len(t, gpus, test.devices)
			}
		})
	}
}

// The template of a name has what the name says, and no more.
func TestSpec(t *testing.T) {
	for name, want := range map[string]string{
		"tranche-amd-gpu-x2":   `{requests: [{name: gpu, exactly: {allocationMode: ExactCount, count: 2, deviceClassName: gpu-amd.tranche.dev}}]}`,
		"tranche-fraction-500": `{requests: [{name: gpu, exactly: {allocationMode: ExactCount, capacity: {requests: {fraction: 500m}}, count: 1, deviceClassName: gpu-fraction-share-nvidia.tranche.dev}}]}`,
		"tranche-memory-1mi":   `{requests: [{name: gpu, exactly: {allocationMode: ExactCount, capacity: {requests: {memory: 1Mi}}, count: 1, deviceClassName: gpu-memory-share-nvidia.tranche.dev}}]}`,
		"tranche-memory-4096mi-limit-8192mi-compute-30-x2.type-h100.type-l4.notuuid-gpu-0": `
config: [{opaque: {driver: gpu.tranche.dev, parameters: {apiVersion: tranche.dev/v1beta1, kind: ShareConfig, memoryLimit: 8Gi}}}]
constraints: [{distinctAttribute: gpu.tranche.dev/uuid, requests: [gpu]}]
requests:
- name: gpu
  exactly:
    allocationMode: ExactCount
    capacity: {requests: {computePercent: "30", memory: 4Gi}}
    count: 2
    deviceClassName: gpu-memory-share-nvidia.tranche.dev
    selectors:
    - cel: {expression: '"productName" in device.attributes["gpu.tranche.dev"] && device.attributes["gpu.tranche.dev"].productName.matches("(?i)(h100|l4)")'}
    - cel: {expression: '!("uuid" in device.attributes["gpu.tranche.dev"] && device.attributes["gpu.tranche.dev"].uuid.matches("(?i)^(gpu[ _-]0)$"))'}
`,
	} {
		r, err := Parse(name)
		require.NoError(t, err)
		got, err := yaml.Marshal(r.Spec().Devices)
		require.NoError(t, err)
		assert.YAMLEq(t, want, string(got), name)
	}
}

// Two halves are of one GPU.
func TestHalvesFitTogether(t *testing.T) {
	r, err := Parse("tranche-fraction-500")
	require.NoError(t, err)
	s := scheduler(t, "h100x8")
	var devices []string
	for _, name := range []string{"a", "b"} {
		claim := allocator.Claim(name)
		claim.Spec = r.Spec()
		grant, err := s.Allocate(t.Context(), "h100x8", claim)
		require.NoError(t, err)
		devices = append(devices, grant.Devices()...)
	}
	assert.Equal(t, devices[0], devices[1])
}
