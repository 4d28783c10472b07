package profile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

func TestSameHash(t *testing.T) {
	for name, group := range map[string][]string{
		"nothing": {"[]", ""},
		"defaults": {"[{}]", "[{gpus: {}}]", "[{sharing: {}}]", "[{xcp: {}}]", "[{extendedResource: {as: Whole}}]",
			"[{sharing: {enabled: true, strategy: TimeSlicing, replicas: 10, maxClients: 48, oneClient: false, exclusiveProcess: false}}]"},
		"MIG":        {"[{mig: {}}]", "[{mig: {mode: Dynamic}}]", "[{mig: {wholeGPUs: true}}]"},
		"key order":  {"[{mig: {mode: Static, partitions: [{profile: 1g, count: 2}, {profile: 2g}]}, sharing: {replicas: 3}}]", "[{sharing: {replicas: 3}, mig: {partitions: [{profile: 2g}, {count: 2, profile: 1g}], mode: Static}}]"},
		"list order": {"[{mig: {profiles: [1g, 2g]}}]", "[{mig: {profiles: [2g, 1g]}}]"},
		"gpus": {"[{gpus: {products: ['*H100*', NVIDIA L4], pciAddresses: ['0000:C1:00.0', '00000000:1b:00.0'], pciIDs: ['0x233010DE'], indexes: [1, 0]}}]",
			"[{gpus: {products: [nvidia l4, '*h100*'], pciAddresses: ['0000:1b:00.0', '0000:c1:00.0'], pciIDs: ['0x233010de'], indexes: [0, 1]}}]"},
		"replicas and clients": {"[{sharing: {replicas: 100}}]", "[{sharing: {replicas: 100, maxClients: 100}}]"},
		"partitions":           {"[{sharing: {partitions: {profiles: [cpx, 1g.10gb]}}}]", "[{sharing: {partitions: {profiles: [1g.10gb, cpx], units: [Memory], extendedResource: {as: Partition}}}}]"},
	} {
		want := Hash("p", rulesOf(t, group[0]))
		assert.Len(t, want, 16)
		for _, other := range group[1:] {
			assert.Equal(t, want, Hash("p", rulesOf(t, other)), "%s: %s", name, other)
		}
		assert.NotEqual(t, want, Hash("q", rulesOf(t, group[0])), "another name")
	}
}

func TestOtherHash(t *testing.T) {
	seen := map[string]string{}
	for _, rules := range []string{
		"[]", "[{}]", "[{mig: {}}]", "[{mig: {mode: Disabled}}]", "[{mig: {wholeGPUs: false}}]", "[{mig: {profiles: [1g]}}]", "[{mig: {profiles: [1g, 2g]}}]",
		"[{mig: {mode: Static, partitions: [{profile: 1g}]}}]", "[{mig: {mode: Static, partitions: [{profile: 1g, count: 1}]}}]",
		"[{xcp: {computePartition: CPX}}]", "[{xcp: {memoryPartition: NPS1}}]", "[{xcp: {computePartition: CPX, memoryPartition: NPS1}}]",
		"[{sharing: {enabled: false}}]", "[{sharing: {strategy: MPS}}]", "[{sharing: {timeSlice: Default}}]", "[{sharing: {timeSlice: Long}}]", "[{sharing: {replicas: 2}}]",
		"[{sharing: {maxClients: 10}}]", "[{sharing: {oneClient: true}}]", "[{sharing: {partitions: {profiles: [cpx]}}}]", "[{sharing: {partitions: {profiles: [cpx], units: [Memory, Fraction]}}}]", "[{sharing: {partitions: {profiles: [cpx], units: [Fraction]}}}]",
		"[{extendedResource: {as: Replica}}]", "[{extendedResource: {as: Partition}}]", "[{extendedResource: {as: Partition, profile: cpx}}]", "[{sharing: {partitions: {profiles: [cpx], units: [Memory, Fraction], extendedResource: {as: Replica}}}}]",
		"[{sharing: {partitions: {profiles: [cpx], replicas: [{profile: cpx, count: 2}]}}}]", "[{gpus: {vendor: amd}}]", "[{gpus: {count: 1}}]", "[{gpus: {indexes: [0]}}]", "[{gpus: {indexes: [0, 1]}}]",
		"[{gpus: {vendor: amd}}, {gpus: {vendor: nvidia}}]", "[{gpus: {vendor: nvidia}}, {gpus: {vendor: amd}}]",
	} {
		hash := Hash("p", rulesOf(t, rules))
		assert.Empty(t, seen[hash], rules)
		seen[hash] = rules
		// As the API server stores them.
		spec := v1beta1.PartitionProfileSpec{Rules: rulesOf(t, rules)}
		spec.Default()
		assert.Equal(t, hash, Hash("p", spec.Rules), rules)
	}
}

// It stays what it is in the cluster's objects over versions of the program.
func TestHashIsStable(t *testing.T) {
	assert.Equal(t, "1d2f1bbfb7e11173", Hash("all-balanced", rulesOf(t, "[{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g, count: 2}]}}]")))
}

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
		hash := Hash("p", x)
		after, err := json.Marshal(x)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
		if hash != Hash("p", y) {
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
