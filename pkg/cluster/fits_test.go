package cluster_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/scenes"
)

// chartProfiles are the PartitionProfiles of the chart.
func chartProfiles(t *testing.T) []cluster.Profile {
	files, err := filepath.Glob("../../deployments/helm/tranche/files/profiles/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []v1beta1.PartitionProfile
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var p v1beta1.PartitionProfile
		require.NoError(t, yaml.UnmarshalStrict(data, &p))
		all = append(all, p)
	}
	return cluster.Profiles(all, nil)
}

// Of the chart's profiles, those of the cluster's models are found, on the nodes that have them.
func TestFitProfiles(t *testing.T) {
	fleet := scenes.Fleet().Objects // H100, MI300X, L4
	fleet.Slices = append(fleet.Slices, nic("gpu-00"))
	profiles := chartProfiles(t)
	unknown, err := cluster.New(fleet).FitProfiles(profiles)
	require.NoError(t, err)
	assert.Empty(t, unknown)
	var fitting []string
	nodes := map[string]int{}
	for _, p := range profiles {
		if nodes[p.Name] = len(p.Fitting); len(p.Fitting) > 0 {
			fitting = append(fitting, p.Name)
		}
	}
	assert.Equal(t, "all-1g.10gb all-1g.10gb.me all-1g.20gb all-2g.20gb all-3g.40gb all-4g.40gb all-7g.80gb all-balanced all-disabled all-enabled "+
		"cpx cpx-nps1 cpx-nps4 dpx dpx-nps1 dpx-nps2 dynamic mps-10 qpx qpx-nps1 qpx-nps4 spx spx-nps1 time-sliced-10 time-sliced-2 time-sliced-4 whole", strings.Join(fitting, " "))
	assert.Equal(t, 6, nodes["all-1g.10gb"])
	assert.Equal(t, 3, nodes["cpx"])
	assert.Equal(t, 12, nodes["whole"])

	fleet.Slices = slices.Concat(scenes.GPUs("node-a", 1, scenes.H100), scenes.GPUs("node-b", 1, scenes.H100), scenes.GPUs("node-c", 1, scenes.L4))
	for i := range fleet.Slices {
		product := map[string]string{"node-a": "NVIDIA X2", "node-b": "NVIDIA X1", "node-c": "NVIDIA X3"}[*fleet.Slices[i].Spec.NodeName]
		for _, d := range fleet.Slices[i].Spec.Devices {
			if _, is := d.Attributes["productName"]; is {
				d.Attributes["productName"] = resourceapi.DeviceAttribute{StringValue: &product}
			}
		}
	}
	unknown, err = cluster.New(fleet).FitProfiles(profiles)
	require.NoError(t, err)
	assert.Equal(t, []string{"NVIDIA X1", "NVIDIA X2"}, unknown, "X3 cannot be partitioned")
}

// nic is a device of another driver on a node.
func nic(node string) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "nic.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "nic"}},
	}}
}

func TestClassGPUs(t *testing.T) {
	class := func(name, resource string, expressions ...string) resourceapi.DeviceClass {
		c := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if resource != "" {
			c.Spec.ExtendedResourceName = &resource
		}
		for _, e := range append([]string{`device.driver == "gpu.tranche.dev"`}, expressions...) {
			c.Spec.Selectors = append(c.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
		}
		return c
	}
	attribute := func(name, value string) string {
		return `device.attributes["gpu.tranche.dev"].?` + name + `.orValue("") == "` + value + `"`
	}
	fleet := scenes.Fleet().Objects
	other := class("gpu.example.com", "")
	other.Spec.Selectors[0].CEL.Expression = `device.driver == "gpu.example.com"`
	for i := range fleet.Slices {
		if devices := fleet.Slices[i].Spec.Devices; len(devices) > 0 {
			devices[0].Attributes = maps.Clone(devices[0].Attributes) // others have the same
			devices[0].Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: ptr.To("GPU-only")}
			break
		}
	}
	fleet.Slices = append(fleet.Slices, nic("gpu-00"))
	fleet.Classes = []resourceapi.DeviceClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "all.tranche.dev"}, Spec: resourceapi.DeviceClassSpec{Selectors: make([]resourceapi.DeviceSelector, 1)}},
		class("gpu-mig-1g-10gb.tranche.dev", "nvidia.com/mig-1g.10gb", attribute("type", "mig"), attribute("profile", "1g.10gb")),
		class("gpu.tranche.dev", "", attribute("type", "gpu")), class("gpu-mig-1g-5gb.tranche.dev", "", attribute("type", "mig"), attribute("profile", "1g.5gb")),
		class("one", "", attribute("uuid", "GPU-only")), other,
	}
	assert.Equal(t, []cluster.Class{
		{Name: "all.tranche.dev", GPUCount: 36, Devices: []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "cpx", "dpx", "monitor", "qpx", "whole GPU"}},
		{Name: "gpu-mig-1g-10gb.tranche.dev", ExtendedResourceName: "nvidia.com/mig-1g.10gb", GPUCount: 24, Devices: []string{"1g.10gb"}},
		{Name: "gpu-mig-1g-5gb.tranche.dev"},
		{Name: "gpu.tranche.dev", GPUCount: 36, Devices: []string{"whole GPU"}},
		{Name: "one", GPUCount: 1, Devices: []string{"1g.10gb"}},
	}, cluster.New(fleet).ClassGPUs(t.Context()))
}
