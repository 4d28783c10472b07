package profile

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// replicated is a profile by whose sharing a test knows it.
func replicated(name string, n int32, source v1alpha1.Source) v1alpha1.ProfileSnapshot {
	return v1alpha1.ProfileSnapshot{Profile: name, Source: source, Hash: "h", Rules: []v1alpha1.Rule{{Sharing: &v1alpha1.Sharing{Replicas: &n}}}}
}

func TestDesired(t *testing.T) {
	config, err := ParseDevicePlugin("f", "slice-5", []byte(configOf("5")))
	require.NoError(t, err)
	misfit := replicated("misfit", 4, v1alpha1.FromLabel)
	misfit.Rules[0].MIG = &v1alpha1.MIG{Profiles: []string{"9g"}}
	for name, tt := range map[string]struct {
		sources  Sources
		known    bool // a state is in force
		replicas int
		profile  string
		err      string
	}{
		"nothing":                          {Sources{}, true, DefaultReplicas, "", ""},
		"a profile":                        {Sources{Applied: replicated("p", 4, v1alpha1.FromLabel)}, true, 4, "p", ""},
		"a profile and a configuration":    {Sources{Applied: replicated("p", 4, v1alpha1.FromSpec), Config: config}, true, 4, "p", ""},
		"the profile default":              {Sources{Applied: replicated("default", 4, v1alpha1.FromDefault)}, true, 4, "default", ""},
		"default and a configuration":      {Sources{Applied: replicated("default", 4, v1alpha1.FromDefault), Config: config}, true, 5, "device-plugin config slice-5", ""},
		"default, configuration unknown":   {Sources{Applied: replicated("default", 4, v1alpha1.FromDefault), Undecided: true}, true, 7, "before", ""},
		"a profile, configuration unknown": {Sources{Applied: replicated("p", 4, v1alpha1.FromLabel), Undecided: true}, true, 4, "p", ""},
		"a configuration":                  {Sources{Config: config}, true, 5, "device-plugin config slice-5", ""},
		"a configuration, undecided":       {Sources{Config: config, Undecided: true}, true, 5, "device-plugin config slice-5", ""},
		"undecided":                        {Sources{Undecided: true}, true, 7, "before", ""},
		"undecided, new":                   {Sources{Undecided: true}, false, DefaultReplicas, "", ""},
		"mig-parted":                       {Sources{Applied: replicated("m", 4, v1alpha1.FromMIGParted)}, true, 4, "m", ""},
		"mig-parted and a configuration":   {Sources{Applied: replicated("m", 4, v1alpha1.FromMIGParted), Config: config}, true, 5, "device-plugin config slice-5", ""},
		"mig-parted, not known yet":        {Sources{Applied: replicated("m", 4, v1alpha1.FromMIGParted), Undecided: true}, true, 7, "before", ""},
		"nos and a configuration":          {Sources{Applied: replicated("mig", 4, v1alpha1.FromNos), Config: config}, true, 5, "device-plugin config slice-5", ""},
		"Kaiwo and a configuration":        {Sources{Applied: replicated("cpx", 4, v1alpha1.FromKaiwo), Config: config}, true, 4, "cpx", ""},
		"does not fit":                     {Sources{Applied: misfit}, true, 7, "before", "PartitionProfile misfit: spec.rules[0].mig.profiles[0]"},
		"does not fit, new":                {Sources{Applied: misfit}, false, DefaultReplicas, "misfit", "9g"},
	} {
		t.Run(name, func(t *testing.T) {
			before := Default()
			before.Profile, before.Replicas = "before", 7
			tt.sources.Current = func(string) (Desired, bool) { return before, tt.known }
			gpus := machine(t, "h100x8")[:1]
			desired, err := tt.sources.Desired(gpus)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			require.Len(t, desired, 1)
			assert.Equal(t, tt.replicas, desired[gpus[0].PCIAddress].Replicas)
			assert.Equal(t, tt.profile, desired[gpus[0].PCIAddress].Profile)
		})
	}
}

// mig-parted's configuration partitions GPUs, and the device plugin's shares them.
func TestDesiredByBoth(t *testing.T) {
	config, err := ParseDevicePlugin("f", "slice-5", []byte(configOf("5")))
	require.NoError(t, err)
	gpus := machine(t, "h100x8")[:1]
	address := gpus[0].PCIAddress
	layout := Layout{Partitioning: PartitioningOff}
	s := Sources{
		Applied: replicated("all-disabled", 4, v1alpha1.FromMIGParted), Layouts: map[string]Layout{address: layout}, Config: config,
		Current: func(string) (Desired, bool) { return Desired{}, false },
	}
	desired, err := s.Desired(gpus)
	require.NoError(t, err)
	assert.Equal(t, layout, desired[address].Layout)
	assert.Equal(t, Legacy{Kind: LegacyPartitionReplica}, desired[address].Legacy)
	assert.Equal(t, 5, desired[address].Replicas)
}

// Partitions stay where they were placed when the profile was applied, also where it does
// not fit any more.
func TestDesiredKeepsPartitions(t *testing.T) {
	hopper := machine(t, "h100x8")[0]
	cut := hopper.WithMIG(gpu.MIGOn)
	placed := Layout{Partitioning: PartitioningStatic, Static: []gpu.Placement{cut.Placements[3]}}
	for name, profiles := range map[string][]string{"fits": {"1g"}, "does not fit": {"9g"}} {
		t.Run(name, func(t *testing.T) {
			applied := replicated("p", 4, v1alpha1.FromLabel)
			applied.Rules[0].MIG = &v1alpha1.MIG{Profiles: profiles}
			s := Sources{
				Applied: applied, Layouts: map[string]Layout{hopper.PCIAddress: placed},
				Current: func(string) (Desired, bool) { return Desired{}, false },
			}
			desired, _ := s.Desired([]gpu.GPU{hopper})
			assert.Equal(t, placed, desired[hopper.PCIAddress].Layout)
		})
	}
}

// The device plugin's file says what nvidia.com/gpu is, with the partitions that a profile made:
// seven slices of ten replicas.
func TestDesiredByFileOnPartitions(t *testing.T) {
	config, err := ParseDevicePlugin("f", "slice-10", []byte("{flags: {migStrategy: single}, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}}"))
	require.NoError(t, err)
	hopper := machine(t, "h100x8")[0]
	placements := hopper.WithMIG(gpu.MIGOn).Placements
	slice := placements[0]
	other := placements[slices.IndexFunc(placements, func(p gpu.Placement) bool { return p.Type != gpu.TypeGPU && p.Profile != slice.Profile })]
	for name, tt := range map[string]struct {
		layout Layout
		want   string
	}{
		"seven slices": {Layout{Partitioning: PartitioningStatic, Static: []gpu.Placement{slice}}, "a replica of a partition " + slice.Profile},
		"whole":        {Layout{Partitioning: PartitioningOff}, "a replica of the whole GPU"},
		"on demand":    {Layout{}, "a replica of the whole GPU"},
		"two profiles": {
			Layout{Partitioning: PartitioningStatic, Static: []gpu.Placement{slice, other}},
			"nothing, because the GPU has partitions of several profiles: ask for nvidia.com/mig-<profile> (MIG strategy mixed), or partition the GPU into one profile",
		},
	} {
		s := Sources{Config: config, Layouts: map[string]Layout{hopper.PCIAddress: tt.layout}}
		desired, err := s.Desired([]gpu.GPU{hopper})
		require.NoError(t, err)
		d := desired[hopper.PCIAddress]
		assert.Equal(t, tt.want, d.LegacyMeaning(), name)
		assert.Equal(t, 10, d.Replicas)
	}
}
