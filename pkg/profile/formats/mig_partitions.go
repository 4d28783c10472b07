package formats

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// migSpelling matches MIG profiles: compute slices, slices, memory, attributes.
var migSpelling = regexp.MustCompile(`^(?:([1-9][0-9]*)c\.)?(([1-9][0-9]*)g\.([1-9][0-9]*)gb((?:[+-].*)?))$`)

// migAttributes are those of the profiles that GPUs have.
var migAttributes = []string{"", "+me", "+me.all", "-me", "+gfx"}

func migOf(problems *strict.Problems, path string, e *migEntry) *v1beta1.MIG {
	switch {
	case !*e.MIGEnabled:
		return &v1beta1.MIG{Mode: v1beta1.MIGDisabled}
	case len(e.MIGDevices) == 0:
		return &v1beta1.MIG{Mode: v1beta1.MIGNoPartitions}
	}
	counts, none := map[string]int{}, true
	for _, name := range slices.Sorted(maps.Keys(e.MIGDevices)) {
		path := strict.Key(path, name)
		n, profile := e.MIGDevices[name], migProfile(problems, path, name)
		if n < 0 || n > mostPartitions {
			problems.Add(path, "is %d, it can be 0 to %d", n, mostPartitions)
		}
		none = none && n == 0
		if profile != "" && n > 0 {
			if counts[profile] > 0 {
				problems.Add(path, "is %s, which is there already; put them together", profile)
			}
			counts[profile] += n
		}
	}
	if none {
		problems.Add(path, "has no partition; write {} for MIG mode without partitions")
	}
	return &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: largestFirst(counts)}
}

// mostPartitions is more than any GPU has of one profile.
const mostPartitions = 16

func migProfile(problems *strict.Problems, path, name string) string {
	m := migSpelling.FindStringSubmatch(name)
	switch {
	case m == nil:
		problems.Add(path, "is no MIG profile: they are spelt 1g.10gb or 1g.10gb+me, as nvidia-smi mig -lgip does")
	case !slices.Contains(migAttributes, m[5]):
		problems.Add(path, "has the attributes %s, which no MIG profile has; there are +me, +me.all, -me and +gfx", m[5])
	case m[1] != "" && m[1] != m[3]:
		problems.Add(path, "is a compute instance, a part of a partition, and those are not created: write %s, and share the partition with sharing.partitions of the PartitionProfile", m[2])
	default:
		return m[2]
	}
	return ""
}

// largestFirst are the partitions in the order of their sizes.
func largestFirst(counts map[string]int) (parts []v1beta1.StaticPartition) {
	size := func(profile string, part int) int {
		n, _ := strconv.Atoi(migSpelling.FindStringSubmatch(profile)[part])
		return n
	}
	const sliceCount, memory = 3, 4
	for _, profile := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(size(b, sliceCount), size(a, sliceCount)), cmp.Compare(size(b, memory), size(a, memory)), cmp.Compare(a, b))
	}) {
		count := int32(counts[profile])
		parts = append(parts, v1beta1.StaticPartition{Profile: profile, Count: &count})
	}
	return parts
}
