package gpu

// HealthEvent is something that happened to a GPU. A caller that takes a GPU
// out of service for a fatal one keeps the event, as it is and in a file, until
// the vendor says that it is over: the driver reports it only once.
type HealthEvent struct {
	// PCIAddress is the GPU. A fatal event counts for all of it.
	PCIAddress string `json:"pciAddress"`
	// Fatal means that nothing new may be put on the GPU.
	Fatal bool `json:"fatal,omitempty"`
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
