package gpu

// Usage is how much a GPU is used at one moment.
type Usage struct {
	// Measured is of the whole GPU, with all its partitions.
	Measured Measured
	// Throttled has the reasons that the driver knows for clocks below those that the load
	// asks for, and whether each applies now. Nil: the driver does not report it.
	Throttled map[string]bool
	// Partitions are those that are complete.
	Partitions []PartitionUsage
	// Processes are those that use the GPU, once for each partition.
	Processes []ProcessUsage
}

// PartitionUsage is how much a partition is used.
type PartitionUsage struct {
	Partition
	// Instance is the number by which the vendor's tools know it on its GPU: of the GPU
	// instance, or of the compute partition.
	Instance string
	Measured Measured
}

// ProcessUsage is how much a process uses a GPU or a partition.
type ProcessUsage struct {
	// PID is that of the host.
	PID int
	// Device is the name of the GPU or partition.
	Device   string
	Measured Measured
}

// Measured has the values that are known.
type Measured map[Measure]float64

// Only returns the values of some measures.
func (m Measured) Only(measures ...Measure) Measured {
	some := Measured{}
	for _, measure := range measures {
		if v, known := m[measure]; known {
			some[measure] = v
		}
	}
	return some
}

// Measure is something that can be measured of a GPU, a partition or a process.
type Measure string

// The measures. Ratios are from 0 to 1.
const (
	// MemoryUsed and MemoryTotal are in bytes.
	MemoryUsed  Measure = "memory used"
	MemoryTotal Measure = "memory total"
	// Utilization is the part of a short time in which any program ran on the GPU.
	Utilization Measure = "utilization"
	// MemoryUtilization is the part of a short time in which memory was read or written.
	MemoryUtilization Measure = "memory utilization"
	// EngineActive, ComputeActive, TensorActive and MemoryActive are averages since the
	// last time that the GPU was measured, see IsAverage: the part of the time in which
	// anything ran, the part of the compute units that worked, the part of the time in
	// which they multiplied matrices, and the part of the memory's bandwidth.
	EngineActive  Measure = "engine active"
	ComputeActive Measure = "compute active"
	TensorActive  Measure = "tensor active"
	MemoryActive  Measure = "memory active"
	// Occupied is the part of the compute units that have work at this moment.
	Occupied Measure = "occupied"
	// Power is in watts.
	Power Measure = "power"
	// ProcessCount is the number of processes.
	ProcessCount Measure = "processes"
	// CorrectedErrors and UncorrectedErrors of the memory are counted since the driver was
	// loaded.
	CorrectedErrors   Measure = "corrected errors"
	UncorrectedErrors Measure = "uncorrected errors"
)

// IsAverage reports whether a measure is an average since the last time that the GPU was measured.
// It says nothing about who holds the device now if it changed hands meanwhile.
func (m Measure) IsAverage() bool {
	switch m {
	case EngineActive, ComputeActive, TensorActive, MemoryActive:
		return true
	}
	return false
}
