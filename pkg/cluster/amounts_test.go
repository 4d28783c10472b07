package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/scenes"
)

// TestLeft: what nobody has of a share is what it has without what all have,
// whether or not their names are shown.
func TestLeft(t *testing.T) {
	in := scenes.Shared()
	admin := scenes.Sharer("monitoring", "look", 0, scenes.GPUOf(0)+"-memory-share", "memory", "1Gi", "clients", "9")
	scenes.Result(&admin).AdminAccess = new(true)
	in.Claims = append(in.Claims, admin)
	want := amounts(map[string]string{"memory": "13005Mi", "computePercent": "50", "clients": "45"}).Texts(true)
	assert.Equal(t, want, in.Summary().Nodes[0].GPUs[0].Held[0].Left.Texts(true))
	in.View.Namespace = "default"
	assert.Equal(t, want, in.Summary().Nodes[0].GPUs[0].Held[0].Left.Texts(true), "also of those that are not shown")

	in.Partial = true
	assert.Nil(t, in.Summary().Nodes[0].GPUs[0].Held[0].Left, "when not all claims could be read, nobody knows")
}

// TestSharesInJSON: programs find amounts as quantities.
func TestSharesInJSON(t *testing.T) {
	var m struct {
		Nodes []struct {
			GPUs []struct{ Devices []map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(asJSON(t, scenes.Shared().Summary())), &m))
	h := m.Nodes[0].GPUs[1].Devices[0]
	assert.Equal(t, "share", h["type"])
	assert.Equal(t, "Fraction", h["shareUnit"])
	assert.Equal(t, map[string]any{"fraction": "500m", "computePercent": "0", "clients": "1"}, h["holders"].([]any)[0].(map[string]any)["consumedCapacity"])
	assert.Equal(t, map[string]any{"fraction": "500m", "computePercent": "100", "clients": "47"}, h["freeCapacity"])
}

// amounts reads quantities.
func amounts(of map[string]string) cluster.Amounts {
	out := cluster.Amounts{}
	for name, text := range of {
		out[name] = resource.MustParse(text)
	}
	return out
}

// TestModeOfShares: a share of a partition keeps its GPU in the partition's mode,
// and is no piece beside it.
func TestModeOfShares(t *testing.T) {
	assert.Equal(t, &cluster.Mode{Name: "DPX", Held: 1, Of: 2}, scenes.Shared().Summary().Nodes[0].GPUs[2].Mode)
	in := scenes.Shared()
	in.Claims = []resourceapi.ResourceClaim{scenes.Sharer("default", "x", 2, scenes.GPUOf(2)+"-memory-share", "memory", "1Gi")}
	assert.Equal(t, &cluster.Mode{Name: "SPX", Held: 1, Of: 1}, in.Summary().Nodes[0].GPUs[2].Mode)
}

func TestAmounts(t *testing.T) {
	for name, test := range map[string]struct {
		of   map[string]string
		all  bool
		want string
	}{
		"memory":             {map[string]string{"memory": "20Gi", "clients": "1", "computePercent": "0"}, false, "20Gi of memory"},
		"everything":         {map[string]string{"clients": "3", "computePercent": "25", "memory": "20Gi"}, false, "20Gi of memory, 25% of compute, 3 clients"},
		"fraction":           {map[string]string{"fraction": "333m"}, false, "fraction 0.333"},
		"all of it":          {map[string]string{"fraction": "1"}, false, "fraction 1"},
		"left":               {map[string]string{"memory": "0", "clients": "1", "computePercent": "0"}, true, "0 of memory, 0% of compute, 1 client"},
		"a capacity to come": {map[string]string{"bandwidth": "5", "clients": "2"}, false, "2 clients, 5 of bandwidth"},
		"nothing":            {nil, true, ""},
	} {
		assert.Equal(t, test.want, strings.Join(amounts(test.of).Texts(test.all), ", "), name)
	}
}
