package profile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// replicated is a profile by whose sharing a test knows it.
func replicated(name string, n int32, source v1beta1.Source) v1beta1.ProfileSnapshot {
	return withMIG(name, n, source, nil)
}

// withMIG is such a profile that sets MIG.
func withMIG(name string, n int32, source v1beta1.Source, mig *v1beta1.MIG) v1beta1.ProfileSnapshot {
	s := Snapshot(name, []v1beta1.Rule{{Sharing: &v1beta1.Sharing{Replicas: &n}, MIG: mig}})
	s.Source = source
	return s
}

func TestDesired(t *testing.T) {
	misfit := withMIG("misfit", 4, v1beta1.FromSpec, &v1beta1.MIG{Profiles: []string{"9g"}})
	for name, tt := range map[string]struct {
		sources  Sources
		known    bool // a state is in force
		replicas int
		profile  string
		err      string
	}{
		"nothing":              {Sources{}, true, DefaultReplicas, "", ""},
		"a profile":            {Sources{Applied: replicated("p", 4, v1beta1.FromSpec)}, true, 4, "p", ""},
		"the profile default":  {Sources{Applied: replicated("default", 4, v1beta1.FromDefault)}, true, 4, "default", ""},
		"a profile, undecided": {Sources{Applied: replicated("p", 4, v1beta1.FromSpec), Undecided: true}, true, 4, "p", ""},
		"undecided":            {Sources{Undecided: true}, true, 7, "before", ""},
		"undecided, new":       {Sources{Undecided: true}, false, DefaultReplicas, "", ""},
		"does not fit":         {Sources{Applied: misfit}, true, 7, "before", "PartitionProfile misfit: spec.rules[0].mig.profiles[0]"},
		"does not fit, new":    {Sources{Applied: misfit}, false, DefaultReplicas, "misfit", "9g"},
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

// Partitions stay where they were placed when the profile was applied, also where it does
// not fit any more.
func TestDesiredKeepsPartitions(t *testing.T) {
	hopper := machine(t, "h100x8")[0]
	cut := hopper.WithMIG(gpu.MIGOn)
	placed := Layout{Partitioning: PartitioningStatic, Static: []gpu.Placement{cut.Placements[3]}}
	for name, profiles := range map[string][]string{"fits": {"1g"}, "does not fit": {"9g"}} {
		t.Run(name, func(t *testing.T) {
			applied := withMIG("p", 4, v1beta1.FromSpec, &v1beta1.MIG{Profiles: profiles})
			s := Sources{
				Applied: applied, Layouts: map[string]Layout{hopper.PCIAddress: placed},
				Current: func(string) (Desired, bool) { return Desired{}, false },
			}
			desired, _ := s.Desired([]gpu.GPU{hopper})
			assert.Equal(t, placed, desired[hopper.PCIAddress].Layout)
		})
	}
}
