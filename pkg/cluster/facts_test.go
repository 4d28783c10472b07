package cluster_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/scenes"
)

// In the way of a device are those who hold it, or what it needs.
func TestInTheWay(t *testing.T) {
	c := cluster.New(oneH100(
		scenes.Claim("team", "a", "node-a", 0, scenes.MIG(0, "3g.40gb", 4)),
		scenes.Claim("team", "b", "node-a", 0, scenes.MIG(0, "1g.10gb", 0)),
	).Objects)
	require.Len(t, c.Pools, 1)
	inTheWay := map[string][]string{}
	for _, d := range c.Pools[0].Devices {
		for _, h := range c.Pools[0].InTheWay(d) {
			inTheWay[d.Name] = append(inTheWay[d.Name], h.Claim)
		}
	}
	const a, b = "a-gpu-x7k2p", "b-gpu-x7k2p"
	assert.ElementsMatch(t, []string{a, b}, inTheWay[scenes.GPUOf(0)])
	assert.Equal(t, []string{b}, inTheWay[scenes.MIG(0, "3g.40gb", 0)])
	assert.Equal(t, []string{a}, inTheWay[scenes.MIG(0, "2g.20gb", 4)])
	assert.Empty(t, inTheWay[scenes.MIG(0, "1g.10gb", 1)])
	assert.Equal(t, []string{b}, inTheWay[scenes.MIG(0, "1g.10gb", 0)], "its own holder")
}

func TestNodesOfACluster(t *testing.T) {
	in := scenes.TwoNodes()
	in.GPUNodes = append(in.GPUNodes, gpunodes.WithProfile("node-b", "").GPUNode)
	c := cluster.New(in.Objects)
	assert.Equal(t, []string{"node-a", "node-b"}, c.NodeNames())
	assert.NotNil(t, c.Progress("node-b"))
	assert.Nil(t, c.Progress("node-a"))
	assert.Equal(t, 6, in.Summary().GPUCount())
}

// What a node's plugin reports of a GPU is shown with that GPU, in whatever order it reports them.
func TestStatesOfGPUs(t *testing.T) {
	in := scenes.Switching()
	reported := in.GPUNodes[0].Status.Node.GPUs
	slices.Reverse(reported)
	want := map[string]cluster.GPUState{}
	for i, state := range cluster.GPUsOf(&in.GPUNodes[0]) {
		want[reported[i].Name] = state
	}
	got := map[string]cluster.GPUState{}
	for _, g := range in.Summary().Nodes[0].GPUs {
		got[g.Name] = g.GPUState
	}
	assert.Equal(t, want, got)
}

// The versions of drivers are each told once.
func TestDriverVersions(t *testing.T) {
	var n cluster.Node
	assert.Empty(t, n.DriverVersion())
	for _, version := range []string{"580.159.04", "", "6.16.13", "580.159.04"} {
		var g cluster.GPU
		g.DriverVersion = version
		n.GPUs = append(n.GPUs, g)
	}
	assert.Equal(t, "580.159.04, 6.16.13", n.DriverVersion())
}

// mapper fails.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("away")
}

// An API server that does not answer is none without DeviceTaintRules.
func TestServesRules(t *testing.T) {
	with := meta.NewDefaultRESTMapper(nil)
	with.Add(resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule"), meta.RESTScopeRoot)
	serves, err := cluster.ServesRules(with)
	require.NoError(t, err)
	assert.True(t, serves)
	serves, err = cluster.ServesRules(meta.NewDefaultRESTMapper(nil))
	require.NoError(t, err)
	assert.False(t, serves)
	_, err = cluster.ServesRules(mapper{})
	require.EqualError(t, err, "find out whether the API server serves DeviceTaintRules: away")
}

func TestSystemNamespace(t *testing.T) {
	class := func(namespace string) resourceapi.DeviceClass {
		return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationSystemNamespace: namespace}}}
	}
	assert.Equal(t, "gpus", cluster.SystemNamespace([]resourceapi.DeviceClass{{}, class("gpus"), class("other")}))
	assert.Empty(t, cluster.SystemNamespace([]resourceapi.DeviceClass{{}}))
	assert.Equal(t, "-n gpus", cluster.InSystem("gpus"))
	assert.Equal(t, "-A", cluster.InSystem(""))
}
