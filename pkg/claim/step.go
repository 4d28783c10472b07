package claim

import (
	"context"
	"errors"

	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// StepError says that a step of a Prepare failed, although nothing is wrong with the claim: the
// hardware could not make a device, a daemon did not start, or a file could not be written.
type StepError struct {
	Op steps.Op
	// Device is what the step was for. Any: it would fail for any other device, too.
	Device gpu.Placement
	Any    bool
	err    error
}

func (e *StepError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.err }

// IsTransient reports whether an error says nothing about the hardware: the call was cancelled or took
// too long.
func IsTransient(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*hardware.ClosedError))
}

// RefusedError says that what a claim asks for cannot be prepared on any node like this one.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// blame says which step an error comes from, if the claim is not to blame.
func (r *run) blame(step steps.Step, err error) error {
	if errors.As(err, new(*StepError)) || errors.As(err, new(*RefusedError)) {
		return err
	}
	isOne := step.Op == steps.OpCreate || step.Op == steps.OpJoin // otherwise Device is 0
	return &StepError{Op: step.Op, Device: r.record.Devices[step.Device].Placement, Any: !isOne, err: err}
}

// blameAlso says that err comes from the same step as an earlier error.
func blameAlso(earlier, err error) error {
	step := (*StepError)(nil)
	if err == nil || !errors.As(earlier, &step) {
		return err
	}
	return &StepError{Op: step.Op, Device: step.Device, Any: step.Any, err: err}
}
