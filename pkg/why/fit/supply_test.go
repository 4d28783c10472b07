package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// The text about a node that is full says whether there is room for fewer.
func TestTextAboutRoom(t *testing.T) {
	for want, s := range map[string]supply{
		"2 of 4 devices free (2 at once): 2 taken":                 {Choice: Choice{Count: 3}, places: 4, taken: 2, free: 2, room: 2, most: 4},
		"2 of 4 devices free: 1 taken, 1 tainted":                  {Choice: Choice{Count: 1}, places: 4, taken: 1, tainted: 1, free: 2, room: 2, most: 4},
		"it asks for 5 devices at once, and the node has 4 in all": {Choice: Choice{Count: 5}, places: 4, free: 4, room: 4, most: 4},
	} {
		verdict := Full
		if s.Count > s.most {
			verdict = Lacking
		}
		assert.Equal(t, want, (&Model{}).supplyText(t.Context(), &corev1.Node{}, &s, verdict))
	}
}
