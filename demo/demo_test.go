// Package demo_test gives the claims of the demos to the scheduler's allocator,
// on a node of either vendor: what the demos show is true before any of them
// runs. The end-to-end tests run them.
package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
	"github.com/tranche-dev/tranche/test/allocator"
)

// The cluster of `make demo`.
const nvidia, amd = "node-a", "node-b"

type cluster struct {
	*allocator.Scheduler
	t      *testing.T
	claims int
}

// newCluster has GPUs that are shared as a folder's settings say, or by default
// if it has none.
func newCluster(t *testing.T, folder string) *cluster {
	t.Helper()
	wanted := settingsOf(t, folder)
	classes, err := allocator.Classes("../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	var slices []*resourceapi.ResourceSlice
	for node, name := range map[string]string{nvidia: "h100x8", amd: "mi300x8"} {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		var gpus []publish.GPU
		desired, err := wanted.Resolve(inv.Hardware(node), nil)
		require.NoError(t, err)
		for _, g := range inv.Hardware(node) {
			shares, err := desired[g.PCIAddress].ShareDevices(&g, g.Vendor == gpu.NVIDIA)
			require.NoError(t, err)
			g.Placements = append(g.Placements, shares...)
			gpus = append(gpus, publish.GPU{GPU: g})
		}
		published, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		slices = append(slices, allocator.Slices(names.DriverName, node, published)...)
	}
	return &cluster{Scheduler: allocator.New(classes, slices), t: t}
}

// ask allocates a claim made of a template; nil when it has to wait.
func (c *cluster) ask(node string, template *resourceapi.ResourceClaimTemplate) *allocator.Grant {
	c.t.Helper()
	c.claims++
	claim := allocator.Claim(fmt.Sprint("claim-", c.claims))
	claim.Spec = *template.Spec.Spec.DeepCopy()
	defaults(claim)
	// The scheduler gives up after ten seconds, on a machine that does nothing else.
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	grant, err := c.Allocate(ctx, node, claim)
	require.NoError(c.t, err)
	return grant
}

// defaults sets what the API server sets.
func defaults(claim *resourceapi.ResourceClaim) {
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if e := r.Exactly; e != nil && e.AllocationMode == "" {
			e.AllocationMode, e.Count = resourceapi.DeviceAllocationModeExactCount, max(1, e.Count)
		}
		for j := range r.FirstAvailable {
			if s := &r.FirstAvailable[j]; s.AllocationMode == "" {
				s.AllocationMode, s.Count = resourceapi.DeviceAllocationModeExactCount, max(1, s.Count)
			}
		}
	}
}

// template is the only one in a manifest.
func template(t *testing.T, path string) *resourceapi.ResourceClaimTemplate {
	t.Helper()
	all := templates(t, path)
	require.Len(t, all, 1, path)
	return all[0]
}

func templates(t *testing.T, path string) (all []*resourceapi.ResourceClaimTemplate) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		found := &resourceapi.ResourceClaimTemplate{}
		require.NoError(t, yaml.Unmarshal(document, found), path)
		if found.Kind == "ResourceClaimTemplate" {
			require.NoError(t, yaml.UnmarshalStrict(document, found), path)
			all = append(all, found)
		}
	}
	return all
}

// TestEveryClaimFits: on the empty cluster of `make demo`, on one node at least.
func TestEveryClaimFits(t *testing.T) {
	files, err := filepath.Glob("*/*.yaml")
	require.NoError(t, err)
	more, err := filepath.Glob("*/*/*.yaml")
	require.NoError(t, err)
	seen := 0
	for _, file := range append(files, more...) {
		for _, claim := range templates(t, file) {
			seen++
			c := newCluster(t, strings.Split(file, "/")[0])
			assert.True(t, c.ask(nvidia, claim) != nil || c.ask(amd, claim) != nil, "%s: no node has what %s asks for", file, claim.Name)
		}
	}
	assert.Greater(t, seen, 18)
}

func TestEitherVendor(t *testing.T) {
	claim := template(t, "either-vendor/either-vendor.yaml")
	c := newCluster(t, "either-vendor")
	for node, piece := range map[string]string{nvidia: "-mig-1g-20gb-", amd: "-cpx-"} {
		grant := c.ask(node, claim)
		require.NotNil(t, grant)
		assert.Contains(t, grant.Devices()[0], piece)
	}
}

// TestIndex: the index links each demo.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	demos, err := filepath.Glob("*/README.md")
	require.NoError(t, err)
	nested, err := filepath.Glob("migrate/*/README.md")
	require.NoError(t, err)
	for _, readme := range append(demos, nested...) {
		assert.Contains(t, string(index), "("+readme+")")
	}
}

func TestVLLM(t *testing.T) {
	grant := newCluster(t, "vllm").ask(nvidia, template(t, "vllm/vllm.yaml"))
	require.NotNil(t, grant)
	assert.Contains(t, grant.Devices()[0], "-mig-3g-40gb-", "the smallest partition with 30 GiB")
}

// TestEightOfOneGPU: on a free GPU, and fast beside GPUs of which somebody
// holds a piece.
func TestEightOfOneGPU(t *testing.T) {
	claim := template(t, "amd-one-gpu/amd-one-gpu.yaml")
	small := template(t, "amd-partition/amd-partition.yaml")
	c := newCluster(t, "amd-one-gpu")
	taken := gpu.OfDevice(c.ask(amd, small).Result.Devices.Results[0].Device)
	for range 7 {
		grant := c.ask(amd, claim)
		require.NotNil(t, grant)
		gpus := map[string]bool{}
		for i, r := range grant.Result.Devices.Results {
			gpus[gpu.OfDevice(r.Device)] = true
			assert.Equal(t, fmt.Sprint("part-", i), r.Request)
			assert.True(t, strings.HasSuffix(r.Device, fmt.Sprint("-cpx-", i)), "%s for %s", r.Device, r.Request)
		}
		require.Len(t, gpus, 1)
		assert.NotContains(t, gpus, taken)
	}
	assert.Nil(t, c.ask(amd, claim), "seven free partitions of the first GPU are not eight")
}

// TestAllGPUs: on a node of which nobody holds anything.
func TestAllGPUs(t *testing.T) {
	claim := template(t, "all-gpus/all-gpus.yaml")
	for node, small := range map[string]string{nvidia: "mig/mig.yaml", amd: "amd-partition/amd-partition.yaml"} {
		c := newCluster(t, "all-gpus")
		grant := c.ask(node, claim)
		require.NotNil(t, grant, node)
		gpus := map[string]bool{}
		for _, device := range grant.Devices() {
			assert.Equal(t, gpu.OfDevice(device), device, "a partition")
			gpus[device] = true
		}
		assert.Len(t, gpus, 8)
		part := template(t, small)
		assert.Nil(t, c.ask(node, part), "%s: all is taken", node)

		c.Release(grant)
		require.NotNil(t, c.ask(node, part))
		assert.Nil(t, c.ask(node, claim), "%s: a part of a GPU is taken", node)
	}
}

// TestLinkedGPUs: what one claim gets is one fabric, and a GPU that is taken leaves no eight.
func TestLinkedGPUs(t *testing.T) {
	two, eight := template(t, "linked-gpus/linked-gpus.yaml"), template(t, "linked-gpus/eight/eight.yaml")
	for _, node := range []string{nvidia, amd} {
		c := newCluster(t, "linked-gpus")
		grant := c.ask(node, eight)
		require.NotNil(t, grant, node)
		assert.Len(t, grant.Devices(), 8)
		c.Release(grant)
		require.NotNil(t, c.ask(node, two), node)
		assert.Nil(t, c.ask(node, eight), node)
	}
}

// TestSwitch: eight pods keep eight GPUs in CPX, so that halves have to wait.
func TestSwitch(t *testing.T) {
	eighth := template(t, "amd-switch/amd-switch.yaml")
	half := template(t, "amd-switch/halves/halves.yaml")
	c := newCluster(t, "amd-switch")
	gpus := map[string]bool{}
	var grants []*allocator.Grant
	for range 8 {
		grant := c.ask(amd, eighth)
		require.NotNil(t, grant)
		grants = append(grants, grant)
		gpus[gpu.OfDevice(grant.Result.Devices.Results[0].Device)] = true
	}
	assert.Len(t, gpus, 8)
	assert.Nil(t, c.ask(amd, eighth), "there is one on each GPU")
	assert.Nil(t, c.ask(amd, half))

	c.Release(grants[3])
	freed := gpu.OfDevice(grants[3].Result.Devices.Results[0].Device)
	for range 2 {
		grant := c.ask(amd, half)
		require.NotNil(t, grant)
		assert.Equal(t, freed, gpu.OfDevice(grant.Result.Devices.Results[0].Device))
	}
	assert.Nil(t, c.ask(amd, half))
}

// TestNodeOverlay: Karpenter is told what Tranche writes into the status of such a node.
func TestNodeOverlay(t *testing.T) {
	data, err := os.ReadFile("migrate/eks/karpenter/nodeoverlay.yaml")
	require.NoError(t, err)
	var overlay struct {
		Spec struct {
			Capacity corev1.ResourceList `json:"capacity"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(data, &overlay))
	inventory, err := models.LoadInventory("p4d.24xlarge")
	require.NoError(t, err)
	gpus := inventory.Hardware("")
	want := noderesources.Of(gpus).List()
	want["nvidia.com/gpu"] = *resource.NewQuantity(int64(7*len(gpus)), resource.DecimalSI)
	require.Len(t, overlay.Spec.Capacity, len(want))
	for name, quantity := range want {
		assert.True(t, quantity.Equal(overlay.Spec.Capacity[name]), "%s: %s", name, quantity.String())
	}
}
