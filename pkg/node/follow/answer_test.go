package follow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The plugin answers before the controller gives up, whatever their clocks say.
func TestBudgetOfAChange(t *testing.T) {
	since := metav1.NewMicroTime(time.Now().Add(time.Hour))
	for name, test := range map[string]struct {
		deadline time.Duration
		want     time.Duration
	}{
		"long":               {30 * time.Minute, 30*time.Minute - answerMargin},
		"short":              {20 * time.Second, 18 * time.Second},
		"nothing that means": {0, applyBudget},
		"before it began":    {-time.Minute, applyBudget},
	} {
		t.Run(name, func(t *testing.T) {
			deadline := metav1.NewMicroTime(since.Add(test.deadline))
			assert.Equal(t, test.want, budgetOf(&v1beta1.Switch{StateChangeTime: since, DeadlineTime: &deadline}))
		})
	}
	assert.Equal(t, applyBudget, budgetOf(&v1beta1.Switch{StateChangeTime: since}))
}

func TestLastingModes(t *testing.T) {
	hopper := gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOff}
	assert.Equal(t, gpu.Modes{}, lastingModes(hopper), "claims change it")
	ampere := gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOn, MIGNeedsReset: true}
	assert.Equal(t, ampere, lastingModes(ampere))
	vgpu := gpu.Modes{MIG: gpu.MIGOn, MIGFixed: true}
	assert.Equal(t, vgpu, lastingModes(vgpu))
	amd := gpu.Modes{Compute: "CPX", Computes: []string{"SPX", "CPX"}, Memory: "NPS1", Memories: []string{"NPS1", "NPS4"}}
	lasting := amd
	lasting.Compute = ""
	assert.Equal(t, lasting, lastingModes(amd), "claims change the compute mode")
}
