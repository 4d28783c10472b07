package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A layout that no GPU can hold is an error, the others of the file are printed.
func TestConvertImpossible(t *testing.T) {
	const file = `version: v1
mig-configs:
  balanced: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}]
  possible: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}}]
  eight: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 8}}]
  of-another-model: [{devices: all, mig-enabled: true, mig-devices: {1g.999gb: 9}}]
`
	var out strings.Builder
	err := convert(strings.NewReader(file), &out, []string{"-"})
	require.ErrorContains(t, err, "balanced: spec.rules[0].mig.partitions: no known GPU can hold these, for example NVIDIA A100-SXM4-40GB: 1g.5gb x 1 do not fit beside 3g.20gb x 2: there is room for none")
	require.ErrorContains(t, err, "eight: spec.rules[0].mig.partitions: no known GPU can hold these, for example NVIDIA A100-SXM4-40GB: 1g.5gb x 8 do not fit: at most 7")
	assert.NotContains(t, err.Error(), "extendedResource")
	assert.Equal(t, 2, strings.Count(out.String(), "kind: PartitionProfile"))
	assert.Contains(t, out.String(), "name: possible")
	assert.Contains(t, out.String(), "name: of-another-model")
}
