package controlplane

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestForAll(t *testing.T) {
	names := make([]string, 100)
	for i := range names {
		names[i] = string(rune('a' + i%26))
	}
	var done atomic.Int32
	require.NoError(t, ForAll(t.Context(), names, func(context.Context, string) error {
		done.Add(1)
		return nil
	}))
	assert.EqualValues(t, len(names), done.Load())
	err := ForAll(t.Context(), names, func(_ context.Context, name string) error {
		if name == "c" {
			return errors.New("broken")
		}
		return nil
	})
	require.EqualError(t, err, "c: broken")
}
