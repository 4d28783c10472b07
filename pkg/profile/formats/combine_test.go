package formats

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const bothLabels = "---\nkind: Node\nmetadata: {name: node-a, labels: {nvidia.com/mig.config: All_1g.5gb, nvidia.com/device-plugin.config: slice-10}}\n"

// Two labels of a Node mean in a converted profile what they mean on a node that keeps them.
func TestCombine(t *testing.T) {
	documents, err := Read("f", []byte(configMapOf("config.yaml", migConfigFile)+"---\n"+configMapOf("slice-10", shared)+bothLabels))
	require.NoError(t, err)
	documents = Combine(documents)
	require.Len(t, documents, 3)
	assert.Equal(t, []string{"run: kubectl label node node-a tranche.dev/profile=all-1g.5gb-slice-10"}, documents[2].Notes)
	both := documents[2].Profiles[0]
	require.NoError(t, both.Err)
	checkValid(t, both)
	assert.Contains(t, both.Notes, "GPUs are partitioned as by All_1g.5gb, and NVIDIA's are shared as by slice-10")
	assert.Empty(t, documents[0].Notes)

	inventory, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	gpus := inventory.Hardware("node-a")
	combined, err := profile.FromRules(both.Name, both.Spec.Rules)
	require.NoError(t, err)
	got, err := combined.Resolve(gpus, nil)
	require.NoError(t, err)

	base, err := profile.FromRules("all-1g.5gb", documents[0].Profiles[0].Spec.Rules)
	require.NoError(t, err)
	layouts, err := base.Resolve(gpus, nil)
	require.NoError(t, err)
	config, err := profile.FromRules("", documents[1].Profiles[0].Spec.Rules)
	require.NoError(t, err)
	want, err := config.Resolve(gpus, nil)
	require.NoError(t, err)
	for address, d := range want {
		d.Layout = layouts[address].Layout
		d.Profile = got[address].Profile
		assert.Equal(t, d, got[address])
		require.Len(t, got[address].Layout.Static, 7)
		assert.Equal(t, []profile.SharedPartition{{Profile: "1g.5gb", Bases: []gpu.Basis{gpu.ByFraction}, Replicas: 10}}, got[address].SharedPartitions())
	}
}

// Without the files, no command drops the sharing.
func TestCombineWithoutFiles(t *testing.T) {
	for _, file := range []string{configMapOf("config.yaml", migConfigFile), configMapOf("slice-10", shared)} {
		documents, err := Read("f", []byte(file+bothLabels))
		require.NoError(t, err)
		documents = Combine(documents)
		require.Len(t, documents[1].Notes, 1)
		assert.Contains(t, documents[1].Notes[0], "the label nvidia.com/device-plugin.config=slice-10 says how these GPUs are shared")
		assert.Empty(t, documents[1].Profiles)
	}
}

// A rule for all GPUs stays the last one, and a combination has no more rules than a profile can have.
func TestTogether(t *testing.T) {
	sharing := &Profile{Original: "four", Spec: v1beta1.PartitionProfileSpec{Rules: []v1beta1.Rule{
		{GPUs: &v1beta1.GPUSelector{Vendor: nvidia}, Sharing: &v1beta1.Sharing{Replicas: ptr.To[int32](4)}},
	}}}
	all := Together(&Profile{Original: "all", Spec: v1beta1.PartitionProfileSpec{Rules: []v1beta1.Rule{{MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}}}}, sharing)
	require.NoError(t, all.Err)
	require.Len(t, all.Spec.Rules, 2)
	assert.Equal(t, v1beta1.MIGDisabled, all.Spec.Rules[0].MIG.Mode)
	assert.Equal(t, sharing.Spec.Rules[0].Sharing, all.Spec.Rules[0].Sharing)
	assert.Nil(t, all.Spec.Rules[1].GPUs)

	many := &Profile{Original: "many"}
	for i := range int32(9) {
		many.Spec.Rules = append(many.Spec.Rules, v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Indexes: []int32{i}}})
	}
	assert.ErrorContains(t, Together(many, sharing).Err, "spec.rules: has 19 entries, it can have 16")
}

// A file of the device plugin can name devices that not all GPUs have.
func TestTogetherWithoutWhatIsNotOffered(t *testing.T) {
	of := func(mode v1beta1.MIGMode, file string) Profile {
		spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: []byte(file)})
		require.NoError(t, err)
		m := &v1beta1.MIG{Mode: mode}
		if mode == v1beta1.MIGStatic {
			m.Partitions = []v1beta1.StaticPartition{{Profile: "1g.10gb"}}
		}
		return Together(&Profile{Original: "a", Spec: v1beta1.PartitionProfileSpec{Rules: []v1beta1.Rule{{MIG: m}}}}, &Profile{Original: "b", Spec: spec})
	}
	const (
		mixed = "{flags: {migStrategy: mixed}, sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: mig-1g.10gb, replicas: 4}]}}}"
		both  = "{flags: {migStrategy: mixed}, sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: mig-1g.10gb, replicas: 4}]}}}"
	)
	for _, mode := range []v1beta1.MIGMode{v1beta1.MIGDisabled, v1beta1.MIGNoPartitions} {
		p := of(mode, mixed)
		require.NoError(t, p.Err)
		assert.Equal(t, off(), p.Spec.Rules[0].Sharing)
	}
	for _, single := range []string{"version: v1", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"} {
		p := of(v1beta1.MIGNoPartitions, single)
		require.NoError(t, p.Err)
		assert.Nil(t, p.Spec.Rules[0].ExtendedResource)
		assert.NotNil(t, of(v1beta1.MIGStatic, single).Spec.Rules[0].ExtendedResource)
	}
	p := of(v1beta1.MIGDisabled, both)
	require.NoError(t, p.Err)
	assert.EqualValues(t, 2, *p.Spec.Rules[0].Sharing.Replicas)
	assert.Equal(t, means(v1beta1.DeviceGPUReplica), p.Spec.Rules[0].ExtendedResource)

	p = of(v1beta1.MIGStatic, both)
	require.NoError(t, p.Err)
	assert.NotNil(t, p.Spec.Rules[0].Sharing.Partitions)
	assert.Nil(t, p.Spec.Rules[0].ExtendedResource)
	assert.ErrorContains(t, of(v1beta1.MIGStatic, "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}").Err, "strategy MPS")
}
