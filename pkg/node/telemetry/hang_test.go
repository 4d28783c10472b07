package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A GPU that hangs delays neither a scrape nor another GPU, and its last sample is not reported
// for long.
func TestAGPUThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.gpus = append(n.gpus, gpu.GPU{PCIAddress: "0000:02:00.0", UUID: "GPU-2"})
		var hangs, underWay atomic.Bool
		reads := 0
		n.use = func(ctx context.Context, address string) (gpu.Usage, error) {
			if address == firstGPU && hangs.Load() {
				assert.True(t, underWay.CompareAndSwap(false, true), "one call at a time")
				defer underWay.Store(false)
				<-ctx.Done()
				time.Sleep(interval / 2)
				return gpu.Usage{}, errors.New("it hangs")
			}
			if address != firstGPU {
				reads++
			}
			return gpu.Usage{Measured: gpu.Measured{gpu.MemoryUsed: 1}}, nil
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		synctest.Wait()
		assert.Len(t, n.scrape(t, "tranche_memory_used"), 2)

		hangs.Store(true)
		for range 10 {
			before := time.Now()
			n.scrape(t, "tranche_")
			assert.Zero(t, time.Since(before), "a scrape does not wait")
			time.Sleep(interval)
			synctest.Wait()
		}
		assert.Equal(t, 11, reads, "the other GPU is measured each time")
		lines := n.scrape(t, "tranche_memory_used")
		assert.Len(t, lines, 1)
		assert.Contains(t, lines[0], "GPU-2")
		assert.Contains(t, strings.Join(n.scrape(t, "tranche_gpu_info"), "\n"), "GPU-1", "it is there, and not measured")

		hangs.Store(false)
		time.Sleep(2 * interval)
		synctest.Wait()
		assert.Len(t, n.scrape(t, "tranche_memory_used"), 2)
		stop()
		<-done
	})
}
