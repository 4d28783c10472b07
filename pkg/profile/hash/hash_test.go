package hash

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// renamed is set by TestRenamedFields: OLD=NEW for a key of the API in the golden file.
const renamed = "TRANCHE_TEST_RENAMED_KEY"

func rulesOf(t *testing.T, text string) []v1beta1.Rule {
	t.Helper()
	if before, after, ok := strings.Cut(os.Getenv(renamed), "="); ok {
		text = strings.ReplaceAll(text, before+":", after+":")
	}
	var rules []v1beta1.Rule
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &rules), text)
	return rules
}

// golden returns the lines of the golden file: a hash, and the rules that it is of. Hashes in it never
// change; for a new key, add lines.
func golden(t *testing.T) (hashes, rules []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/v1.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		hash, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		hashes, rules = append(hashes, hash), append(rules, text)
	}
	return hashes, rules
}

// It stays what it is in the cluster's objects over versions of the program.
func TestGolden(t *testing.T) {
	hashes, rules := golden(t)
	seen := map[string]string{}
	for i, text := range rules {
		got := Of("golden", rulesOf(t, text))
		assert.Equal(t, hashes[i], got, text)
		assert.Empty(t, seen[got], "the same as %s", text)
		seen[got] = text
	}
}

func TestSameHash(t *testing.T) {
	for name, group := range map[string][]string{
		"nothing": {"[]", ""},
		"defaults": {"[{}]", "[{gpus: {}}]", "[{sharing: {}}]", "[{xcp: {}}]", "[{extendedResource: {device: GPU}}]", "[{unchanged: false}]",
			"[{sharing: {wholeGPUs: true, strategy: TimeSlicing, replicas: 10, maxClients: 48, failRequestsGreaterThanOne: false, exclusiveProcess: false}}]", "[{sharing: {maxMemoryLimitPercent: 100}}]"},
		"MIG":        {"[{mig: {}}]", "[{mig: {mode: Dynamic}}]", "[{mig: {wholeGPUs: true}}]"},
		"key order":  {"[{mig: {mode: Static, partitions: [{profile: 1g, count: 2}, {profile: 2g}]}, sharing: {replicas: 3}}]", "[{sharing: {replicas: 3}, mig: {partitions: [{profile: 2g}, {count: 2, profile: 1g}], mode: Static}}]"},
		"list order": {"[{mig: {profiles: [1g, 2g]}}]", "[{mig: {profiles: [2g, 1g]}}]"},
		"gpus": {"[{gpus: {productNames: ['*H100*', NVIDIA L4], pciBusIDs: ['0000:C1:00.0', '00000000:1b:00.0'], pciIDs: ['0x233010DE'], indexes: [1, 0]}}]",
			"[{gpus: {productNames: [nvidia l4, '*h100*'], pciBusIDs: ['0000:1b:00.0', '0000:c1:00.0'], pciIDs: ['0x233010de'], indexes: [0, 1]}}]"},
		"replicas and clients": {"[{sharing: {replicas: 100}}]", "[{sharing: {replicas: 100, maxClients: 100}}]"},
		"partitions":           {"[{sharing: {partitions: {profiles: [cpx, 1g.10gb]}}}]", "[{sharing: {partitions: {profiles: [1g.10gb, cpx], units: [Memory], extendedResource: {device: Partition}}}}]"},
		"replicas":             {"[{sharing: {partitions: {replicas: [{profile: cpx, count: 2}, {profile: 1g, count: 3}]}}}]", "[{sharing: {partitions: {replicas: [{profile: 1g, count: 3}, {profile: cpx, count: 2}]}}}]"},
		"units":                {"[{sharing: {partitions: {profiles: [cpx], units: [Memory, Fraction]}}}]", "[{sharing: {partitions: {profiles: [cpx], units: [Fraction, Memory]}}}]"},
	} {
		want := Of("p", rulesOf(t, group[0]))
		for _, other := range group[1:] {
			assert.Equal(t, want, Of("p", rulesOf(t, other)), "%s: %s", name, other)
		}
		assert.NotEqual(t, want, Of("q", rulesOf(t, group[0])), "another name")
		// As the API server stores them.
		spec := v1beta1.PartitionProfileSpec{Rules: rulesOf(t, group[0])}
		spec.Default()
		assert.Equal(t, want, Of("p", spec.Rules), name)
	}
}

func TestOtherHash(t *testing.T) {
	seen := map[string]string{}
	for _, rules := range []string{
		"[]", "[{}]", "[{}, {}]", "[{mig: {}}]", "[{mig: {profiles: [1g]}}]", "[{mig: {profiles: [1g, 2g]}}]", "[{gpus: {indexes: [0]}}]", "[{gpus: {indexes: [0, 1]}}]", "[{gpus: {pciBusIDs: [a]}}]", "[{gpus: {pciBusIDs: [b]}}]",
		"[{mig: {mode: Static, partitions: [{profile: 1g}]}}]", "[{mig: {mode: Static, partitions: [{profile: 1g, count: 1}]}}]",
		"[{sharing: {timeSlice: Default}}]", "[{sharing: {timeSlice: Long}}]", "[{sharing: {maxClients: 10}}]", "[{extendedResource: {device: Auto}}]", "[{extendedResource: {device: Partition, profile: cpx}}]",
		"[{gpus: {vendor: amd}}, {gpus: {vendor: nvidia}}]", "[{gpus: {vendor: nvidia}}, {gpus: {vendor: amd}}]",
	} {
		hash := Of("p", rulesOf(t, rules))
		assert.Empty(t, seen[hash], rules)
		seen[hash] = rules
	}
}

// A program that writes a newer version still knows what has a hash of an earlier one.
func TestStoredVersion(t *testing.T) {
	rules, others := rulesOf(t, "[{mig: {}}]"), rulesOf(t, "[{xcp: {computePartition: CPX}}]")
	first, other := Of("p", rules), Of("p", others)
	assert.Regexp(t, "^v1:[0-9a-f]{16}$", first)
	before := Versions
	t.Cleanup(func() { Versions = before })
	Versions = slices.Concat(before[:1], []Version{{Name: "v2", Of: func(profile string, rules []v1beta1.Rule) string { return v1("second "+profile, rules) }}})

	second := Of("p", rules)
	assert.Regexp(t, "^v2:[0-9a-f]{16}$", second)
	assert.Equal(t, first, Of("p", rules, "", other, first), "it is not switched again")
	assert.Equal(t, second, Of("p", rules, other), "another profile")
	assert.Equal(t, second, Of("p", rules, "v3:"+first[3:], first[3:], "v3:", ":"), "versions that nobody knows")
	assert.Equal(t, second, Of("p", rules, second, first))
	assert.Equal(t, first, Of("p", rules, first, second))
	assert.LessOrEqual(t, len(second), 64, "what the API has room for")
}
