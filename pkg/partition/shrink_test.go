package partition

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// The plan that the controller gets names them, and Shapes are what the plan was made by.
func TestPlanNamesShrinking(t *testing.T) {
	p := newPlace(t, hopper, other, mi300)
	p.hardware.gpu(hopper).modes.MIG, p.hardware.gpu(hopper).modes.PendingMIG = gpu.MIGOn, gpu.MIGOn
	n := p.start()
	w := p.profile("whole", map[string]profile.Layout{hopper: off, other: off})
	task := n.Plan(t.Context(), w)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, []string{"gpu-0000-02-00-0"}, task.ShrinkingGPUs)
	layouts, err := n.Layouts(t.Context(), w, []string{other})
	require.NoError(t, err)
	assert.Equal(t, off, layouts[other])

	p.unresolved = errors.New("it does not fit")
	_, err = p.start().Layouts(t.Context(), p.profile("more", nil), []string{other})
	require.ErrorContains(t, err, "it does not fit")
}
