package plans

import (
	"testing"

	"github.com/stretchr/testify/assert"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/fleet/rollout"
)

// A node that begins while a decision is made, which takes its place away, keeps it: others get
// nothing until the node is observed.
func TestADecisionThatIsOvertaken(t *testing.T) {
	again := 0
	k := &Keeper{Again: func() { again++ }, Wake: func(string, bool) {}}
	k.publish(&fleet{}, nil, rollout.Result{Granted: map[string]string{"a": "old", "c": "old"}})
	observed := &fleet{}
	a := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	a.Status.Switch = &v1alpha1.Switch{To: v1alpha1.ProfileSnapshot{Hash: "old"}}
	a.Status.Node = &v1alpha1.NodeReport{Held: 1}
	assert.True(t, k.Begins(a))
	k.publish(observed, nil, rollout.Result{Granted: map[string]string{"b": "new", "c": "old"}})
	assert.Equal(t, map[string]string{"c": "old"}, k.granted())
	assert.Equal(t, 1, again)
	assert.False(t, k.Begins(a), "it is told so if it asks again")

	// The next decision knows that it begins.
	k.publish(&fleet{beginning: map[string]bool{"a": true}}, nil, rollout.Result{Granted: map[string]string{"b": "new"}})
	assert.Equal(t, map[string]string{"b": "new"}, k.granted())
	assert.Equal(t, 1, again)
	k.Seen(a)
	assert.Empty(t, k.beginning)
}
