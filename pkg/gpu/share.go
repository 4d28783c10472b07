package gpu

import "strings"

// Basis says in what a share is measured. It is published as the attribute
// "shareUnit", because a claim chooses by it.
type Basis string

// The bases of shares.
const (
	// ByMemory is a share of so many bytes.
	ByMemory Basis = "Memory"
	// ByFraction is a share of so much of the memory, from 0 to 1.
	ByFraction Basis = "Fraction"
)

// Bases lists the bases of shares, in the order in which they are offered.
func Bases() []Basis { return []Basis{ByMemory, ByFraction} }

// Word is the basis in names of devices and in texts: "memory".
func (b Basis) Word() string { return strings.ToLower(string(b)) }

// Strategy is how the holders of shares take turns on what they share. It is
// published as the attribute "sharingStrategy".
type Strategy string

// The strategies.
const (
	// TimeSlicing gives the whole of it to one process at a time.
	TimeSlicing Strategy = "TimeSlicing"
	// MPS runs processes side by side, through one NVIDIA Multi-Process Service
	// for all of them.
	MPS Strategy = "MPS"
)

// TimeSlice is how long a process may run before it is another's turn. NVIDIA's
// driver knows four lengths (nvidia-smi compute-policy --set-timeslice).
type TimeSlice string

// The lengths of time slices.
const (
	DefaultSlice TimeSlice = "Default"
	ShortSlice   TimeSlice = "Short"
	MediumSlice  TimeSlice = "Medium"
	LongSlice    TimeSlice = "Long"
)

// The units of what is taken of a share.
const (
	// MiB is the step in which memory is shared, in bytes: MPS counts in it.
	MiB = 1 << 20
	// WholeFraction is the fraction 1, in thousandths.
	WholeFraction = 1000
	// WholeCompute is all of the compute units, in percent.
	WholeCompute = 100
	// LimitIsRequest is the limit of a share that is what its claim requests, in percent.
	LimitIsRequest = 100
)

// MaxMPSClients is how many clients an MPS server takes from Volta on, before CUDA
// 13 (NVIDIA, Multi-Process Service, "Volta MPS").
const MaxMPSClients = 48

// Sharing is how a GPU, or a partition of it, is shared. All holders of its
// shares find the same, because it is a property of the device.
type Sharing struct {
	Strategy Strategy `json:"strategy"`
	// Replicas is how many shares that name no amount fill the device.
	Replicas int `json:"replicas"`
	// TimeSlice is the length of a turn, empty for what the driver does by itself.
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`
	// MaxClients is how many clients the device has for all its shares together. A
	// share takes one unless its claim asks for more.
	MaxClients int `json:"maxClients"`
	// FailRequestsGreaterThanOne refuses shares that ask for more than one client, and
	// requests for more than one share.
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
	// ExclusiveProcess keeps processes that bypass the MPS daemon off the GPU, by
	// NVIDIA's compute mode of that name. For MPS only.
	ExclusiveProcess bool `json:"exclusiveProcess,omitempty"`
	// MaxMemoryLimitPercent is the largest memory limit of a claim, in percent of its amount; zero:
	// the limit is the amount.
	MaxMemoryLimitPercent int `json:"maxMemoryLimitPercent,omitempty"`
	// Limits is set where holders are kept to their memory by an MPS daemon, which
	// was seen to work.
	Limits bool `json:"limits,omitempty"`
	// KernelLimits is set where the kernel driver keeps pods to the memory of their shares, which
	// was seen to work.
	KernelLimits bool `json:"kernelLimits,omitempty"`
}

// MemoryLimit is what a control group may have of a GPU's memory, and what it uses of it, in bytes.
// Without a limit, all may be zero.
type MemoryLimit struct {
	// Guaranteed is the amount above which allocations may fail although Bytes allows them.
	Guaranteed int64
	Bytes      int64
	Used       int64
}

// Burst reports whether claims can have more memory of the share than they request.
func (s Sharing) Burst() bool { return s.MaxMemoryLimitPercent > LimitIsRequest }

// Share makes of a placement a device that several claims hold at once, each a
// part of it.
type Share struct {
	// Of is the type of what is shared: the whole GPU or a partition.
	Of Type `json:"of"`
	// By is what the share is measured in.
	By Basis `json:"unit"`
	Sharing
}

// Amount is what one claim has of a share device.
type Amount struct {
	// Memory is in bytes. Of a share by fraction it is worked out from that.
	Memory int64 `json:"memoryBytes,omitempty"`
	// Fraction is in thousandths, zero for a share by memory.
	Fraction int64 `json:"fraction,omitempty"`
	// Compute is in percent, zero for no limit.
	Compute int64 `json:"computePercent,omitempty"`
	Clients int64 `json:"clients,omitempty"`
}

// ShareOf returns the share device of a placement. It takes of the GPU what the
// placement does, so that shares keep off the same that the placement keeps off,
// the other share device of the placement included.
func ShareOf(p Placement, by Basis, s Sharing) Placement {
	q := p
	q.Type = TypeShare
	q.Share = &Share{Of: p.Type, By: by, Sharing: s}
	switch {
	case s.KernelLimits && s.Strategy == TimeSlicing:
		q.Isolation = IsolationKernel
	case s.Limits: // NVIDIA does not say whose memory that of a client of MPS is
		q.Isolation = IsolationCooperative
	default:
		q.Isolation = IsolationNone
	}
	return q
}

// ShareName is the name of the share device of a device.
func ShareName(device string, by Basis) string { return device + "-" + by.Word() + "-share" }

// Base is what exists in the hardware for the placement: of a share what is
// shared, of all others the placement itself.
func (p Placement) Base() Placement {
	if p.Share == nil {
		return p
	}
	p.Type, p.Share = p.Share.Of, nil
	return p
}

// SharesWith reports whether two claims can hold the placements at once because
// they are shares of the same device.
func (p Placement) SharesWith(q Placement) bool {
	return p.Share != nil && q.Share != nil && p.Name() == q.Name()
}

// Settings is how a GPU is set, as far as sharing changes it.
type Settings struct {
	// ComputeMode is NVIDIA's: "Default", "ExclusiveProcess" or "Prohibited".
	ComputeMode string `json:"computeMode,omitempty"`
}

// The compute modes of NVIDIA's GPUs, as Settings spells them.
const (
	ComputeDefault    = "Default"
	ComputeExclusive  = "ExclusiveProcess"
	ComputeProhibited = "Prohibited"
)
