package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile/hash"
)

// A controller that writes a newer version of hashes than the one before it switches no node, and makes
// no revision.
func TestANewerVersionOfHashesChangesNothing(t *testing.T) {
	w := planned(t, 3)
	w.label("node-0", names.LabelProfile, "spx")
	w.settled("node-0", "spx")
	w.label("node-1", names.LabelProfile, names.DefaultProfile)
	w.plan("p", func(*v1beta1.PartitionPlanSpec) {})
	w.rolls("p", time.Hour, because(names.ReasonComplete))
	applied := func() (hashes []string) {
		for _, name := range []string{"node-0", "node-1", "node-2"} {
			g := w.gpuNode(name)
			assert.Equal(t, v1beta1.Idle, g.Status.State, name)
			hashes = append(hashes, g.Status.Applied.Hash)
		}
		return hashes
	}
	before := applied()

	first := hash.Versions
	t.Cleanup(func() { hash.Versions = first })
	hash.Versions = slices.Concat(first[:1], []hash.Version{{Name: "v2", Of: func(profile string, rules []v1beta1.Rule) string {
		return first[0].Of("second "+profile, rules)
	}}})
	w.startController()
	for range 20 {
		w.all()
		w.clock.Step(time.Second)
		assert.Equal(t, before, applied())
	}
	assert.EqualValues(t, 1, w.planStatus("p").Revision)
	assert.Equal(t, names.ReasonComplete, progressing(w.planStatus("p")))

	// A change gets a hash of the newer version.
	for _, name := range []string{"cpx", "spx"} {
		w.profile(name, func(p *v1beta1.PartitionProfile) {
			p.Spec.Rules[0].Sharing = &v1beta1.Sharing{Replicas: ptr.To[int32](2)}
		})
	}
	w.rolls("p", time.Hour, func(s *v1beta1.PartitionPlanStatus) bool {
		return s.Revision == 2 && progressing(s) == names.ReasonComplete && w.gpuNode("node-0").Status.Applied.Hash != before[0]
	})
	assert.True(t, strings.HasPrefix(w.gpuNode("node-0").Status.Applied.Hash, "v2:"))
	assert.Equal(t, before[1], w.gpuNode("node-1").Status.Applied.Hash)
	assert.True(t, strings.HasPrefix(w.gpuNode("node-2").Status.Applied.Hash, "v2:"))
}
