package gpu

import (
	"context"
	"errors"
	"strconv"
)

// Problem is what is wrong with a GPU. Nothing is if there is no message.
type Problem struct {
	Cause Cause
	// Message says to a person what is wrong, and what to do.
	Message string
}

// ProblemOf returns the problem that an error describes.
func ProblemOf(err error) Problem { return Problem{CauseOf(err), err.Error()} }

// Cause says in a word why a GPU, or a device of it, is unhealthy. It is the value of the taint, so
// it is a valid value of a label. XIDs have XIDCause.
type Cause string

// The causes.
const (
	// CauseLost: the GPU is no longer on its bus, or its driver no longer lists it.
	CauseLost Cause = "lost"
	// CauseNoAnswer: the GPU, or its driver, takes too long to answer.
	CauseNoAnswer Cause = "no-answer"
	// CauseRecovery: the driver requests a recovery action, such as a reset.
	CauseRecovery Cause = "recovery-needed"
	// CauseReset: the GPU is being reset.
	CauseReset Cause = "in-reset"
	// CauseErrors: the GPU has counted errors that could not be corrected.
	CauseErrors Cause = "uncorrected-errors"
	// CauseMissing: a part of the GPU is not there although it should be.
	CauseMissing Cause = "missing"
	// CauseDriver: the GPU's driver cannot be used.
	CauseDriver Cause = "driver-unusable"
	// CauseHeldDevice: claims hold a device that no longer exists.
	CauseHeldDevice Cause = "held-device-gone"
	// CauseNotPrepared: a device could not be prepared.
	CauseNotPrepared Cause = "not-prepared"
	// CauseCheck: the check of the GPU failed for another reason.
	CauseCheck Cause = "check-failed"
)

// XIDCause is the cause that is an error of NVIDIA's driver: "xid-79".
func XIDCause(xid uint64) Cause { return Cause("xid-" + strconv.FormatUint(xid, 10)) }

// CauseOf returns the cause that an error has by its Cause method, or that it is known by.
func CauseOf(err error) Cause {
	var caused interface{ Cause() Cause }
	var driver *DriverError
	switch {
	case errors.As(err, &caused):
		return caused.Cause()
	case errors.Is(err, ErrLost):
		return CauseLost
	case errors.As(err, &driver):
		return CauseDriver
	case errors.Is(err, context.DeadlineExceeded):
		return CauseNoAnswer
	}
	return CauseCheck
}

// HealthEvent is something that happened to a GPU. A caller that takes a GPU
// out of service for a fatal one keeps the event, as it is and in a file, until
// the vendor says that it is over: the driver reports it only once.
type HealthEvent struct {
	// PCIAddress is the GPU. A fatal event counts for all of it.
	PCIAddress string `json:"pciAddress"`
	// Fatal means that nothing new may be put on the GPU.
	Fatal bool `json:"fatal,omitempty"`
	// Cause is what happened, in a word.
	Cause Cause `json:"cause,omitempty"`
	// Message says to a person what happened and what to do.
	Message string `json:"message"`

	// LoadID is that of the driver when it happened.
	LoadID string `json:"loadID,omitempty"`
	// XID is the error number of NVIDIA's driver, zero when it was none: the GPU
	// is lost, or cannot be watched.
	XID uint64 `json:"xid,omitempty"`
	// GPUInstance is the GPU instance in which it happened, nil when the driver
	// does not say.
	GPUInstance *int `json:"gpuInstance,omitempty"`
	// Energy is what the GPU had used up by then, in millijoules, zero when it
	// does not say. It only grows until the GPU restarts.
	Energy uint64 `json:"energy,omitempty"`
}

// ObstacleKind says of what kind an obstacle is.
type ObstacleKind string

const (
	// ObstacleBusy is a process that keeps the GPU from changing its mode.
	ObstacleBusy ObstacleKind = "busy"
	// ObstacleMissing is a part of the GPU that its driver does not offer although
	// it should.
	ObstacleMissing ObstacleKind = "missing"
	// ObstacleFailed is a step that failed for a device, and would fail for this one,
	// too.
	ObstacleFailed ObstacleKind = "failed"
)

// Obstacle is why a placement cannot be had at the moment, although no claim is
// in its way. It goes by itself, or when a person does something about it.
type Obstacle struct {
	// Placement is the device name.
	Placement string
	// Alone: shares of the device can be had.
	Alone bool
	Kind  ObstacleKind
	// Reason says to a person what is in the way and what to do. It is the same
	// as long as the obstacle is.
	Reason string
}
