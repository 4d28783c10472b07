package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// The text about a node says what is free, and what the others are.
func TestSupplyText(t *testing.T) {
	for want, s := range map[string]supply{
		"2 of 4 devices free: 2 taken":                               {Choice: demand.Choice{Count: 3}, places: 4, taken: 2, free: 2, most: 4},
		"2 of 4 devices free: 1 taken, 1 tainted":                    {Choice: demand.Choice{Count: 1}, places: 4, taken: 1, tainted: 1, free: 2, most: 4},
		"it asks for 5 devices at once, and the node has 4 in total": {Choice: demand.Choice{Count: 5}, places: 4, free: 4, most: 4},
	} {
		assert.Equal(t, want, (&Model{}).supplyText(&corev1.Node{}, &s, s.verdict(false)))
	}
}
