package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
)

// A constraint without requests is about all of them. Of the others, only requests of the claim
// count, also by their alternatives.
func TestConstraintsOf(t *testing.T) {
	of := func(attribute resourceapi.FullyQualifiedName, requests ...string) resourceapi.DeviceConstraint {
		return resourceapi.DeviceConstraint{Requests: requests, MatchAttribute: &attribute}
	}
	d := resourceapi.DeviceClaim{
		Requests:    []resourceapi.DeviceRequest{{Name: "a"}, {Name: "b"}},
		Constraints: []resourceapi.DeviceConstraint{of("x/all"), of("x/one", "a", "gone"), of("x/alternative", "b/small"), of("x/none", "gone", "gone/small")},
	}
	got := map[resourceapi.FullyQualifiedName][]string{}
	for _, c := range constraintsOf(d) {
		got[*c.MatchAttribute] = c.Requests
	}
	assert.Equal(t, map[resourceapi.FullyQualifiedName][]string{"x/all": nil, "x/one": {"a"}, "x/alternative": {"b/small"}}, got)
	assert.Len(t, d.Constraints[1].Requests, 2, "the claim is unchanged")
}
