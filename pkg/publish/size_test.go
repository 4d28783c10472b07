package publish_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// What the slices of a node may take in JSON, in kilobytes: they are sent to the
// scheduler and everyone else who watches slices. With the shares of whole GPUs it
// is more.
var (
	largest           = map[string]int{"h200x8": 184, "mi300x8": 114}
	largestWithShares = map[string]int{"h200x8": 205, "mi300x8": 128}
)

// TestSize weighs the slices of each built-in inventory as the API server
// stores them, managed fields aside.
func TestSize(t *testing.T) {
	for _, name := range models.InventoryNames() {
		weigh(t, name, offered(gpusOf(t, builtIn(t, name))), largest)
		weigh(t, name, withShares(t, offered(gpusOf(t, builtIn(t, name))), profile.Default()), largestWithShares)
	}
}

func weigh(t *testing.T, name string, gpus []publish.GPU, largest map[string]int) {
	t.Helper()
	published := slicesOf(t, gpus)
	size, devices, counters := 0, 0, 0
	for _, slice := range published {
		slice.UID, slice.ResourceVersion = "6f0c0ed8-30ab-4a4b-9a4b-0d1f0cbe7a11", "123456789"
		slice.OwnerReferences[0].UID = slice.UID
		data, err := json.Marshal(slice)
		require.NoError(t, err)
		size += len(data)
		devices += len(slice.Spec.Devices)
		for _, set := range slice.Spec.SharedCounters {
			counters += len(set.Counters)
		}
	}
	t.Logf("%s: %d slices, %d devices, %d counters, %.1f KB of JSON", name, len(published), devices, counters, float64(size)/1000)
	if limit, ok := largest[name]; ok {
		assert.LessOrEqual(t, size, limit*1000, name)
	}
}
