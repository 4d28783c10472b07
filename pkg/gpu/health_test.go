package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

type smokes struct{ error }

func (smokes) Cause() gpu.Cause { return gpu.CauseErrors }

func TestCauseOf(t *testing.T) {
	for want, err := range map[gpu.Cause]error{
		gpu.CauseErrors:   fmt.Errorf("check: %w", smokes{gpu.ErrLost}),
		gpu.CauseLost:     fmt.Errorf("check: %w", gpu.ErrLost),
		gpu.CauseDriver:   &gpu.DriverError{Err: context.DeadlineExceeded},
		gpu.CauseNoAnswer: fmt.Errorf("check: %w", context.DeadlineExceeded),
		gpu.CauseCheck:    errors.New("NVML call DeviceGetMemoryInfo: ERROR_UNKNOWN"),
	} {
		assert.Equal(t, gpu.Problem{Cause: want, Message: err.Error()}, gpu.ProblemOf(err))
	}
}

// A cause is the value of a taint, and the API server refuses devices with an invalid one.
func TestCausesAreValidTaintValues(t *testing.T) {
	assert.Equal(t, gpu.Cause("xid-79"), gpu.XIDCause(79))
	for _, cause := range []gpu.Cause{
		gpu.CauseLost, gpu.CauseNoAnswer, gpu.CauseRecovery, gpu.CauseReset, gpu.CauseErrors, gpu.CauseMissing, gpu.CauseDriver,
		gpu.CauseHeldDevice, gpu.CauseNotPrepared, gpu.CauseCheck, gpu.XIDCause(0), gpu.XIDCause(math.MaxUint64),
	} {
		assert.Empty(t, validation.IsValidLabelValue(string(cause)), cause)
	}
}
