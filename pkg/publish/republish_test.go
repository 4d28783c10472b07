package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// changed returns the numbers of the slices that the API server would have to write.
func changed(t *testing.T, before, after []*resourceapi.ResourceSlice) (all []int) {
	t.Helper()
	require.Len(t, after, len(before))
	for i := range before {
		if !apiequality.Semantic.DeepEqual(before[i].Spec, after[i].Spec) {
			all = append(all, i)
		}
	}
	return all
}

// TestWhatAChangeWrites: nothing after a restart on unchanged hardware, one slice when one GPU
// changes.
func TestWhatAChangeWrites(t *testing.T) {
	inventory := builtIn(t, "h200x8")
	before := slicesOf(t, gpusOf(t, inventory))
	gpus := gpusOf(t, inventory)
	assert.Empty(t, changed(t, before, slicesOf(t, gpus)), "restart")
	gpus[3].Taints = []resourceapi.DeviceTaint{{Key: names.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	assert.Equal(t, []int{4}, changed(t, before, slicesOf(t, gpus)), "taint")
	gpus[3].Taints = nil
	gpus[5].Withheld = true
	assert.Equal(t, []int{1, 6}, changed(t, before, slicesOf(t, gpus)), "withheld, with its device for monitors")
	gpus[5].Withheld = false
	assert.Empty(t, changed(t, before, slicesOf(t, gpus)), "as before")
}

// TestWhatAChangeOfModeWrites: a switch of an AMD GPU costs the API server nothing, nor does a
// restart in another mode than that in which the GPUs were published.
func TestWhatAChangeOfModeWrites(t *testing.T) {
	inventory := builtIn(t, "mi300x8")
	driver := amdDriver(t, inventory)
	gpus := amdGPUs(t, driver)
	before := slicesOf(t, gpus)
	switchTo(t, driver, gpus[2], "cpx")
	switchTo(t, driver, gpus[5], "dpx")
	assert.Empty(t, changed(t, before, slicesOf(t, amdGPUs(t, driver))), "switch")

	for i := range inventory.AMD {
		inventory.AMD[i].ComputeMode = xcp.QPX
	}
	gpus = gpusOf(t, inventory)
	assert.Empty(t, changed(t, before, slicesOf(t, gpus)), "restart")
	gpus[3].DeviceTaints = map[string][]resourceapi.DeviceTaint{
		gpus[3].Placements[0].Name(): {{Key: names.TaintBusy, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}
	assert.Equal(t, []int{4}, changed(t, before, slicesOf(t, gpus)), "taint")
}
