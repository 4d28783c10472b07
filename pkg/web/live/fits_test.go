package live

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/short"
)

// sharedCluster has nodes of both vendors, with shares of GPUs and of partitions, one GPU that is
// tainted, and the classes of the chart.
func sharedCluster(t *testing.T, partitions ...string) ([]*resourceapi.DeviceClass, []*resourceapi.ResourceSlice) {
	classes, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	var published []*resourceapi.ResourceSlice
	for node, name := range map[string]string{"node-a": "h100x2-mi300x2", "node-b": "l4x4"} {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		desired := profile.Default()
		desired.Partitions, desired.PartitionBases = partitions, gpu.Bases()
		var gpus []publish.GPU
		for _, g := range inv.Hardware(node) {
			shares, err := desired.ShareDevices(&g, g.Vendor == gpu.NVIDIA)
			require.NoError(t, err)
			g.Placements = append(g.Placements, shares...)
			gpus = append(gpus, publish.GPU{GPU: g})
		}
		all, errs := publish.Slices(gpus)
		require.Empty(t, errs)
		for i, s := range allocator.Slices(names.DriverName, node, all) {
			s.Name = fmt.Sprintf("%s-%d", node, i)
			for j := range s.Spec.Devices {
				if d := &s.Spec.Devices[j]; node == "node-b" && gpu.OfDevice(d.Name) == gpus[0].Name() {
					d.Taints = []resourceapi.DeviceTaint{{Key: "example.com/repair", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
				}
			}
			published = append(published, s)
		}
	}
	return classes, published
}

// claimOf is the claim of a page, as the API server would have it.
func claimOf(t *testing.T, page string) *resourceapi.ResourceClaim {
	var template resourceapi.ResourceClaimTemplate
	require.NoError(t, yaml.UnmarshalStrict(bytes.Split([]byte(page), []byte("\n---\n"))[0], &template))
	exactly := template.Spec.Spec.Devices.Requests[0].Exactly
	exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}, Spec: template.Spec.Spec}
}

// beside is what the page knows when claims are allocated.
func beside(t *testing.T, classes []*resourceapi.DeviceClass, published []*resourceapi.ResourceSlice, held []*allocator.Grant) *overview.Snapshot {
	var o cluster.Objects
	for _, s := range published {
		o.Slices = append(o.Slices, *s)
	}
	for _, c := range classes {
		o.Classes = append(o.Classes, *c)
	}
	for i, grant := range held {
		c := *grant.Claim.DeepCopy()
		c.Name, c.Status.Allocation = fmt.Sprintf("claim-%d", i), &grant.Result
		o.Claims = append(o.Claims, c)
	}
	s := New(clock)
	require.NoError(t, s.Load(o))
	s.Step(t.Context())
	return s.Snapshot()
}

// The scheduler's allocator allocates the claim of the page as often as the page says, whatever
// else is allocated.
func TestClaimsFitAsOftenAsThePageSays(t *testing.T) {
	classes, published := sharedCluster(t, "3g.40gb", "1g.10gb", "dpx")
	wishes := []string{
		"8Gi", "79Gi", "30G", "0.5", "33.3%", "1/4", "memory share", "share", "20Gi of 3g.40gb", "0.3 of 1g.10gb", "60Gi of dpx", "dpx fraction share",
		"8Gi, 40% of compute", "1Mi, 20 clients", "whole GPU", "3g.40gb", "1g.10gb", "cpx",
	}
	empty := beside(t, classes, published, nil)
	compiled := allocation.NewCache(100)
	for seed := range uint64(short.Of(2, 4)) {
		random := rand.New(rand.NewPCG(seed, 3))
		scheduler := allocator.New(classes, published)
		scheduler.Compiled = compiled
		nodes := []string{"node-a", "node-b"}
		for range int(seed) * 4 {
			claim := claimOf(t, overview.RoomFor(empty, wishes[random.IntN(len(wishes))]).Claim)
			_, err := scheduler.Allocate(t.Context(), nodes[random.IntN(2)], claim)
			require.NoError(t, err)
		}
		before := scheduler.Held()
		known := beside(t, classes, published, before)
		for _, typed := range wishes {
			said := overview.RoomFor(known, typed)
			require.True(t, said.Known, typed)
			require.Empty(t, said.Never, typed)
			at := map[string]int{}
			for _, p := range said.Places {
				at[p.Node] = p.Count
			}
			for _, node := range nodes {
				got := 0
				for {
					grant, err := scheduler.Allocate(t.Context(), node, claimOf(t, said.Claim))
					require.NoError(t, err)
					if grant == nil {
						break
					}
					got++
				}
				assert.Equal(t, at[node], got, "%s on %s, beside %d claims", typed, node, len(before))
			}
			scheduler.ReleaseAll()
			scheduler.Hold(before...)
		}
	}
}

// What no GPU could give is said, and not counted.
func TestSharesThatNeverFit(t *testing.T) {
	classes, published := sharedCluster(t, "3g.40gb")
	known := beside(t, classes, published, nil)
	for typed, want := range map[string]string{
		"300Gi":                           "No GPU could ever give it: the largest has 196592Mi of memory for all its shares.",
		"8Gi, 49 clients":                 "No GPU could ever give it: a share has at most 48 clients.",
		"10Gi of 3g.40gb, 40% of compute": "No such share has compute. Claims can ask for it where MPS limits shares: of whole NVIDIA GPUs, on nodes where MPS works.",
		"180Gi, 40% of compute":           "No GPU could ever give all of it at once.",
	} {
		assert.Equal(t, want, overview.RoomFor(known, typed).Never, typed)
	}
	r := overview.RoomFor(known, "8Gi of 2g.20gb")
	assert.False(t, r.Known)
	assert.True(t, r.Shared)
	assert.NotNil(t, r.Share)
}
