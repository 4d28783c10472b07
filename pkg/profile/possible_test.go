package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// The error of a layout that does not fit has no consequences of it.
func TestUnfitLayoutAlone(t *testing.T) {
	inventory, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	gpus := inventory.Hardware("n")
	rules := []v1beta1.Rule{{
		MIG:              &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g.5gb", Count: ptr.To[int32](8)}}},
		ExtendedResource: &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "1g.5gb"},
	}}
	p, err := FromRules("eight", rules)
	require.NoError(t, err)
	_, err = p.Resolve(gpus, nil)
	require.ErrorContains(t, err, "1g.5gb x 8 do not fit: at most 7")
	require.NotContains(t, err.Error(), "extendedResource")

	require.ErrorContains(t, Possible("f", rules, gpus), "f: spec.rules[0].mig.partitions: no known GPU can hold these, for example NVIDIA A100-SXM4-40GB: 1g.5gb x 8 do not fit: at most 7")
	rules[0].MIG.Partitions[0].Count = ptr.To[int32](7)
	require.NoError(t, Possible("f", rules, gpus))
	rules[0].MIG.Partitions[0] = v1beta1.StaticPartition{Profile: "1g.999gb", Count: ptr.To[int32](99)}
	require.NoError(t, Possible("f", rules, gpus), "no GPU has the profile")
	rules[0].MIG.Partitions[0] = v1beta1.StaticPartition{Profile: "1g", Count: ptr.To[int32](7)}
	require.NoError(t, Possible("f", rules, append(machine(t, "a30x4"), gpus...)), "an A100 holds what an A30 cannot")
}
