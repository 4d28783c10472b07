package karpenter

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"

	"github.com/tranche-dev/tranche/test/autoscalers/nodes"
)

// supportDRA is the flag without which Karpenter leaves pods with claims alone.
const supportDRA = "--ignore-dra-requests=false"

const (
	smallest = nodes.Smallest
	half     = nodes.Half
	cpx      = nodes.CPX
	whole    = nodes.Whole
	share    = nodes.Share
)

// There is no node yet.
func TestScaleUpFromZero(t *testing.T) {
	for _, test := range []struct {
		name string
		// pods by class
		pods map[string]int
		// model of each new node
		want []string
	}{
		{"a partition", map[string]int{smallest: 1}, []string{"h100x8"}},
		{"a node full of partitions", map[string]int{smallest: 56}, []string{"h100x8"}},
		{"one partition more", map[string]int{smallest: 57}, []string{"h100x8", "h100x8"}},
		{"partitions and GPUs on one node", map[string]int{smallest: 7, whole: 7}, []string{"h100x8"}},
		{"one GPU too many", map[string]int{half: 1, whole: 8}, []string{"h100x8", "l4x4"}},
		{"whole GPUs, which the cheapest node has", map[string]int{whole: 4}, []string{"l4x4"}},
		{"AMD partitions", map[string]int{cpx: 65}, []string{"mi300x8", "mi300x8"}},
		// One GPU has room for ten.
		{"shares, each of which Karpenter counts as a GPU", map[string]int{share: 4}, []string{"l4x4"}},
		{"more shares than a node has GPUs", map[string]int{share: 5}, []string{"h100x8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, []string{"cpu", "l4x4", "mi300x8", "h100x8"}, supportDRA)
			for _, class := range slices.Sorted(maps.Keys(test.pods)) {
				c.pending(class, test.pods[class])
			}
			results := c.schedule()
			require.Empty(t, results.PodErrors)
			assert.ElementsMatch(t, test.want, modelsOf(results))
			for _, claim := range results.NewNodeClaims {
				assert.Equal(t, nodes.Driver, claim.Annotations[karpenter.DRADriversAnnotationKey], "Karpenter waits for our slices")
			}
		})
	}
}

// modelsOf are the cheapest models that each new node may have.
func modelsOf(results scheduling.Results) (names []string) {
	for _, claim := range results.NewNodeClaims {
		names = append(names, claim.InstanceTypeOptions.OrderByPrice(claim.Requirements)[0].Name)
	}
	return names
}

// With Karpenter's default, and with a provider that has no templates, no node is added.
func TestNoScaleUp(t *testing.T) {
	c := newCluster(t, []string{"h100x8"})
	c.pending(smallest, 1)
	results := c.schedule()
	assert.Empty(t, results.NewNodeClaims)
	require.Len(t, results.PodErrors, 1)

	c = newCluster(t, []string{"h100x8"}, supportDRA)
	for _, it := range c.cloud.types {
		it.DynamicResources = cloudprovider.DynamicResources{}
	}
	c.pending(smallest, 1)
	results = c.schedule()
	assert.Empty(t, results.NewNodeClaims)
	require.Len(t, results.PodErrors, 1)
}

// Claims that say more than a class.
func TestRequests(t *testing.T) {
	one := func(name, class string) resourceapi.DeviceRequest {
		r := nodes.Claim(namespace, name, class).Spec.Devices.Requests[0]
		r.Name = name
		return r
	}
	parent := ptr.To(resourceapi.FullyQualifiedName(nodes.Driver + "/parentUUID"))
	for _, test := range []struct {
		name  string
		claim resourceapi.DeviceClaim
		// cheapest model of the new node; empty: no node is added
		want string
	}{
		{"a partition, else a whole GPU", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "device", FirstAvailable: []resourceapi.DeviceSubRequest{
				{Name: "part", DeviceClassName: half, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
				{Name: "whole", DeviceClassName: whole, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
			},
		}}}, "l4x4"},
		{"two partitions of one GPU", resourceapi.DeviceClaim{
			Requests:    []resourceapi.DeviceRequest{one("a", half), one("b", smallest)},
			Constraints: []resourceapi.DeviceConstraint{{MatchAttribute: parent}},
		}, "h100x8"},
		{"partitions of two GPUs", resourceapi.DeviceClaim{
			Requests:    []resourceapi.DeviceRequest{one("a", half), one("b", smallest)},
			Constraints: []resourceapi.DeviceConstraint{{DistinctAttribute: parent}},
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, []string{"l4x4", "h100x8"}, supportDRA)
			c.podWith(resourceapi.ResourceClaimSpec{Devices: test.claim}, nil)
			results := c.schedule()
			if test.want == "" {
				assert.Empty(t, results.NewNodeClaims)
				return
			}
			require.Empty(t, results.PodErrors)
			assert.Equal(t, []string{test.want}, modelsOf(results))
		})
	}
}

// Requests of GPU memory and compute beside a claim add a node if Karpenter knows that it has
// them, from the cloud or from a NodeOverlay. They alone add none.
func TestGPUResources(t *testing.T) {
	inNode := corev1.ResourceList{"tranche.dev/gpu-compute": resource.MustParse("8k"), "tranche.dev/gpu-memory": resource.MustParse("637Gi")}
	inPod := corev1.ResourceList{"tranche.dev/gpu-compute": resource.MustParse("142"), "tranche.dev/gpu-memory": resource.MustParse("9Gi")}
	for _, test := range []struct {
		name                      string
		cloud, overlay, templates bool
		added                     int
	}{
		{"nobody knows the resources", false, false, true, 0},
		{"the cloud has them", true, false, true, 1},
		{"a NodeOverlay has them", false, true, true, 1},
		{"there are no templates of slices", false, true, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, []string{"h100x8"}, supportDRA, "--feature-gates=NodeOverlay=true")
			if test.cloud {
				maps.Copy(c.cloud.types[0].Capacity, inNode)
			}
			if !test.templates {
				c.cloud.types[0].DynamicResources = cloudprovider.DynamicResources{}
			}
			if test.overlay {
				o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}
				o.Spec.Capacity = inNode
				o.Spec.Requirements = []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"h100x8"}}}
				c.overlay(o)
			}
			c.podWith(nodes.Claim(namespace, "", smallest).Spec, inPod)
			results := c.schedule()
			require.Len(t, results.NewNodeClaims, test.added)
			if test.added == 0 {
				return
			}
			claim := results.NewNodeClaims[0].ToNodeClaim()
			_, ok := lifecycle.RequestedResourcesRegistered(&corev1.Node{Status: corev1.NodeStatus{Allocatable: capacity()}}, claim)
			assert.False(t, ok, "the plugin has written nothing yet")
			allocatable := capacity()
			maps.Copy(allocatable, inNode)
			missing, ok := lifecycle.RequestedResourcesRegistered(&corev1.Node{Status: corev1.NodeStatus{Allocatable: allocatable}}, claim)
			assert.True(t, ok, missing)
		})
	}
}

// Free devices of a node are used before a node is added.
func TestNodesThatAreThere(t *testing.T) {
	c := newCluster(t, []string{"h100x8"}, supportDRA)
	c.node("h100x8", "node-a")
	c.runs("node-a", whole, 7)
	c.pending(smallest, 7)
	results := c.schedule()
	require.Empty(t, results.PodErrors)
	assert.Empty(t, results.NewNodeClaims)
	c.pending(smallest, 1)
	assert.Len(t, c.schedule().NewNodeClaims, 1)
}

// Devices that a template promises are those that the scheduler allocates, by the same name.
func TestTheSameDevices(t *testing.T) {
	for _, class := range []string{smallest, half, whole, share} {
		c := newCluster(t, []string{"h100x8"}, supportDRA)
		pod := c.pod(class)
		results := c.schedule()
		require.Len(t, results.DRAClaimAllocationMetadata, 1)
		var promised []string
		for _, claim := range results.DRAClaimAllocationMetadata {
			for _, devices := range claim.Devices {
				for _, d := range devices {
					promised = append(promised, d.DeviceID.Device.Value())
				}
			}
		}
		c.node("h100x8", "node-a")
		result, err := c.schedulers["node-a"].Allocate(c.ctx, nodes.Claim(namespace, pod.Name, class))
		require.NoError(t, err)
		require.NotNil(t, result)
		assert.Equal(t, []string{result.Devices.Results[0].Device}, promised, class)
	}
}

func TestConsolidation(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*cluster)
		want []string
	}{
		{"a half-empty fleet", func(c *cluster) {
			c.runs("node-a", whole, 4)
			c.runs("node-b", smallest, 3)
		}, []string{"node-b"}},
		{"a fleet that one node can just serve", func(c *cluster) {
			c.runs("node-a", whole, 6)
			c.runs("node-b", smallest, 14)
		}, []string{"node-a"}}, // it has fewer pods
		{"all GPUs used", func(c *cluster) {
			c.runs("node-a", whole, 8)
			c.runs("node-b", whole, 8)
		}, nil},
		{"all partitions used", func(c *cluster) {
			c.runs("node-a", smallest, 56)
			c.runs("node-b", smallest, 56)
		}, nil},
		{"room for partitions, but not for a GPU", func(c *cluster) {
			c.runs("node-a", whole, 7)
			c.runs("node-a", smallest, 1)
			c.runs("node-b", whole, 1)
			c.runs("node-b", smallest, 49)
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, []string{"h100x8"}, supportDRA)
			c.node("h100x8", "node-a")
			c.node("h100x8", "node-b")
			test.run(c)
			assert.Equal(t, test.want, c.removes())
		})
	}
}

// With Karpenter's default, no node with a claim is removed.
func TestNoConsolidation(t *testing.T) {
	c := newCluster(t, []string{"h100x8"})
	c.node("h100x8", "node-a")
	c.node("h100x8", "node-b")
	c.runs("node-a", whole, 4)
	c.runs("node-b", smallest, 3)
	assert.Empty(t, c.removes())
}

// A new node is initialized once its pool is complete: all GPUs are published then.
func TestInitialization(t *testing.T) {
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{karpenter.DRADriversAnnotationKey: nodes.Driver}}}
	published := slicesOf(t, "h100x8", "node-a")
	for n := range len(published) + 1 {
		missing, ok := lifecycle.DRADriversPublished(claim, published[:n])
		assert.Equal(t, n == len(published), ok, "%d slices of %d", n, len(published))
		if !ok {
			assert.Equal(t, nodes.Driver, missing)
		}
	}
}
