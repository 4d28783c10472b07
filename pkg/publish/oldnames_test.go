package publish_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/allocator"
)

// byOldName is a node that follows a rule, with classes for the extended resources of NVIDIA's
// device plugin. One class is for one resource.
func byOldName(t *testing.T, model string, count int, rule string) (*cluster, map[string]string) {
	t.Helper()
	p, err := profile.Parse("p", []byte("{apiVersion: tranche.dev/v1beta1, kind: PartitionProfile, metadata: {name: p}, spec: {rules: ["+rule+"]}}"))
	require.NoError(t, err)
	gpus := gpusOf(t, machineOf(t, model, count))
	var plain []gpu.GPU
	for i := range gpus {
		plain = append(plain, gpus[i].GPU)
	}
	desired, err := p.Resolve(plain, nil)
	require.NoError(t, err)
	for i := range gpus {
		g := &gpus[i]
		d := desired[g.PCIAddress]
		g.GPU = g.WithMIG(gpu.MIGOn)
		g.Placements = slices.DeleteFunc(slices.Clone(g.Placements), func(p gpu.Placement) bool { return !d.Layout.Offers(p) })
		shares, err := d.ShareDevices(&g.GPU, true)
		require.NoError(t, err)
		g.Placements = append(g.Placements, shares...)
		g.ExtendedResource, g.Means, g.MIGResource = "nvidia.com/gpu", d.Means, d.MIGResource
	}
	classes, err := allocator.Classes("../../deployments/helm/testdata/simulate.yaml")
	require.NoError(t, err)
	scheduler := allocator.New(classes, slicesOf(t, gpus))
	scheduler.Compiled = compiled
	byResource := map[string]string{}
	for _, class := range classes {
		if class.Spec.ExtendedResourceName != nil {
			require.Empty(t, byResource[*class.Spec.ExtendedResourceName])
			byResource[*class.Spec.ExtendedResourceName] = class.Name
		}
	}
	return &cluster{t: t, scheduler: scheduler}, byResource
}

// What pods get that request the device plugin's resources one by one, until nothing is left.
func TestOldNamesFillANode(t *testing.T) {
	const sevenOnes = "mig: {mode: Static, partitions: [{profile: 1g}]}"
	for name, test := range map[string]struct {
		model, rule, resource string
		want                  int
		device                string
	}{
		"whole GPUs":                    {"H100-80GB", "{}", "nvidia.com/gpu", 2, ""},
		"replicas":                      {"H100-80GB", "{extendedResource: {device: GPUReplica}}", "nvidia.com/gpu", 20, "-fraction-share"},
		"partitions":                    {"H100-80GB", "{" + sevenOnes + ", extendedResource: {device: Auto}}", "nvidia.com/gpu", 14, "-mig-1g-10gb-"},
		"shares":                        {"H100-80GB", "{}", "nvidia.com/gpu.shared", 20, "-fraction-share"},
		"seven slices, ten replicas":    {"A100-40GB", "{" + sevenOnes + ", sharing: {replicas: 10, failRequestsGreaterThanOne: true}, extendedResource: {device: AutoReplica}}", "nvidia.com/gpu", 140, "-mig-1g-5gb-"},
		"partitions, without MIG":       {"L4-24GB", "{extendedResource: {device: Auto}}", "nvidia.com/gpu", 2, ""},
		"replicas, without MIG":         {"L4-24GB", "{extendedResource: {device: AutoReplica}, sharing: {replicas: 4}}", "nvidia.com/gpu", 8, "-fraction-share"},
		"partitions by their name":      {"H100-80GB", "{" + sevenOnes + "}", "nvidia.com/mig-1g.10gb", 14, "-mig-1g-10gb-"},
		"on demand":                     {"H100-80GB", "{}", "nvidia.com/mig-1g.10gb", 14, "-mig-1g-10gb-"},
		"replicas by the name":          {"H100-80GB", "{" + sevenOnes + ", sharing: {partitions: {profiles: [1g.10gb], units: [Memory, Fraction], extendedResource: {device: PartitionReplica}, replicas: [{profile: 1g.10gb, count: 4}]}}}", "nvidia.com/mig-1g.10gb", 56, "-fraction-share"},
		"not shared by the name":        {"H100-80GB", "{" + sevenOnes + ", sharing: {partitions: {profiles: [1g.10gb], units: [Memory, Fraction]}}}", "nvidia.com/mig-1g.10gb", 14, "-mig-1g-10gb-"},
		"mixed serves no whole GPU":     {"H100-80GB", "{" + sevenOnes + "}", "nvidia.com/gpu", 0, ""},
		"single serves no mig resource": {"H100-80GB", "{" + sevenOnes + ", extendedResource: {device: Auto}}", "nvidia.com/mig-1g.10gb", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, classes := byOldName(t, test.model, 2, test.rule)
			devices := c.fill(classes[test.resource])
			assert.Len(t, devices, test.want)
			for _, device := range devices {
				assert.Contains(t, device, test.device)
			}
		})
	}
}

// One container with several: the scheduler makes one request with a count.
func TestOldNamesByCount(t *testing.T) {
	c, classes := byOldName(t, "H100-80GB", 2, "{mig: {mode: Static, partitions: [{profile: 1g}]}, extendedResource: {device: Auto}}")
	seven := c.ask(allocator.Request("container-0-request-0", classes["nvidia.com/gpu"], 7))
	require.NotNil(t, seven)
	devices := seven.Devices()
	slices.Sort(devices)
	assert.Len(t, slices.Compact(devices), 7)
	assert.NotNil(t, c.ask(allocator.Request("container-0-request-0", classes["nvidia.com/gpu"], 7)))
	assert.Nil(t, c.one(classes["nvidia.com/gpu"]))

	// The allocator of Kubernetes 1.37 takes each device once for a request, also a share.
	c, classes = byOldName(t, "H100-80GB", 1, "{mig: {mode: Static, partitions: [{profile: 1g}]}, sharing: {replicas: 2}, extendedResource: {device: AutoReplica}}")
	assert.Nil(t, c.ask(allocator.Request("container-0-request-0", classes["nvidia.com/gpu"], 8)))
	assert.NotNil(t, c.ask(allocator.Request("container-0-request-0", classes["nvidia.com/gpu"], 7)))
	assert.Len(t, c.fill(classes["nvidia.com/gpu"]), 7)
}
