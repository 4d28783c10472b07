package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The claim's status says what its devices are, or why there are none.
func TestClaimStatus(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", small0)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci0, PID: 4711}}})
	k.refused(c)
	failed := nodetest.AwaitStatus(t, m.api, c, metav1.ConditionFalse)
	assert.Equal(t, "PrepareFailed", failed.Conditions[0].Reason)
	assert.Contains(t, failed.Conditions[0].Message, "in use by process 4711")

	m.faults(nvdriver.Faults{})
	k.mustPrepare(c)
	ready := nodetest.AwaitStatus(t, m.api, c, metav1.ConditionTrue)
	assert.Equal(t, []string{"gpu.tranche.dev", small0}, []string{ready.Driver, ready.Device})
	assert.Contains(t, string(ready.Data.Raw), `"profile":"1g.10gb","uuid":"MIG-`)
	require.Empty(t, k.unprepare(c))
}
