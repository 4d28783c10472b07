package kubelet

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// Of two plugins, the older one publishes until it has ended.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	ctx := klog.NewContext(t.Context(), logr.Discard())
	mine := make(chan string, 3)
	endFirst, err := Lead(ctx, dir, func() { mine <- "first" })
	require.NoError(t, err)
	require.Len(t, mine, 1, "at once")
	require.Equal(t, "first", <-mine)

	endSecond, err := Lead(ctx, dir, func() { mine <- "second" })
	require.NoError(t, err)
	endThird, err := Lead(ctx, dir, func() { mine <- "third" })
	require.NoError(t, err)
	endThird()
	assert.Empty(t, mine)
	endFirst()
	require.Equal(t, "second", <-mine)
	endSecond()
	assert.Empty(t, mine, "who has given up does not lead")
}
