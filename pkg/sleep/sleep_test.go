package sleep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		assert.NoError(t, For(t.Context(), time.Hour))
		assert.Equal(t, time.Hour, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		assert.ErrorIs(t, For(ctx, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}
