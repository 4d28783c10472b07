package profile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile/hash"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// Rules of the same hash are the same on every machine, and hashing changes nothing.
func FuzzHash(f *testing.F) {
	f.Add([]byte(`[{"gpus":{"vendor":"amd"},"xcp":{"computePartition":"CPX"}}]`), []byte(`[{"xcp":{"computePartition":"CPX"},"gpus":{"vendor":"amd"}}]`))
	f.Add([]byte(`[{"mig":{"profiles":["1g","2g"]}}]`), []byte(`[{"mig":{"profiles":["2g","1g"],"wholeGPUs":true},"sharing":{}}]`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var x, y []v1beta1.Rule
		if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			return
		}
		before, err := json.Marshal(x)
		require.NoError(t, err)
		given := hash.Of("p", x)
		after, err := json.Marshal(x)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
		if given != hash.Of("p", y) {
			return
		}
		s, errX := FromRules("p", x)
		r, errY := FromRules("p", y)
		if errX != nil || errY != nil {
			return
		}
		for _, name := range models.InventoryNames() {
			gpus := machine(t, name)
			one, errX := s.Resolve(gpus, nil)
			two, errY := r.Resolve(gpus, nil)
			require.Equal(t, errX == nil, errY == nil, "%v, %v", errX, errY)
			for pci := range one {
				require.Equal(t, one[pci].Layout, two[pci].Layout)
				require.Equal(t, one[pci].Sharing, two[pci].Sharing)
			}
		}
	})
}
