package partition

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// TestOfGPU: what an error says of a GPU is found by the GPU, not by its text.
func TestOfGPU(t *testing.T) {
	full, busy, lone := errors.New("the disk is full; nothing was written"), fmt.Errorf("it is %w", gpu.ErrInUse), errors.New("no driver")
	err := join(about(full, "a"), about(busy, "b"), about(full, "c"), lone)
	texts := func(err error, gpuID string) (out []string) {
		for _, e := range OfGPU(err, gpuID) {
			out = append(out, e.Error())
		}
		return out
	}
	assert.Equal(t, "the disk is full; nothing was written; it is in use; no driver", err.Error(), "nothing is told twice")
	assert.ErrorIs(t, err, gpu.ErrInUse)
	assert.Equal(t, []string{full.Error()}, texts(err, "a"))
	assert.Equal(t, []string{full.Error()}, texts(err, "c"))
	assert.Empty(t, texts(err, "d"))

	assert.Equal(t, []string{"it is in use", "no driver"}, texts(about(err, "b"), "b"), "only what names no GPU yet")
	around := about(fmt.Errorf("load the driver: %w", err), "a", "d")
	assert.Equal(t, []string{"load the driver: " + err.Error()}, texts(around, "d"))
	assert.NoError(t, about(nil, "a"))
	assert.Empty(t, OfGPU(nil, "a"))
}
