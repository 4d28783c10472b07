package profile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func TestLegacyMeans(t *testing.T) {
	whole := gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeGPU, Profile: "spx"}
	small := gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb"}
	large := gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "3g.40gb"}
	share := func(p gpu.Placement, by gpu.Basis) gpu.Placement { return gpu.ShareOf(p, by, gpu.Sharing{}) }
	all := []gpu.Placement{
		whole, small, large,
		share(whole, gpu.ByMemory), share(whole, gpu.ByFraction),
		share(small, gpu.ByMemory), share(small, gpu.ByFraction),
	}
	for name, test := range map[string]struct {
		legacy profile.Legacy
		want   gpu.Placement
	}{
		"nothing said":      {profile.Legacy{}, whole},
		"whole":             {profile.Legacy{Kind: profile.LegacyWhole}, whole},
		"replica":           {profile.Legacy{Kind: profile.LegacyReplica}, share(whole, gpu.ByFraction)},
		"partition":         {profile.Legacy{Kind: profile.LegacyPartition, Profile: "1g.10gb"}, small},
		"another partition": {profile.Legacy{Kind: profile.LegacyPartition, Profile: "3g.40gb"}, large},
	} {
		for _, p := range all {
			assert.Equal(t, p.Name() == test.want.Name(), test.legacy.Means(p), "%s: %s", name, p.Name())
		}
	}
	// The whole AMD GPU has a profile, and is no partition.
	assert.False(t, profile.Legacy{Kind: profile.LegacyPartition, Profile: "spx"}.Means(whole))
}
