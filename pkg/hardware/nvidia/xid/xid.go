package xid

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Class is what an XID means for the GPU.
type Class int

// The classes.
const (
	// Application: a program failed or lost its context and must be restarted. The
	// GPU is healthy.
	Application Class = iota + 1
	// Informative: worth reporting, but the GPU continues to work.
	Informative
	// Fatal: nothing new may be allocated on the GPU until the error ends.
	Fatal
	// Ruled: the driver's recovery action changed. What that means, the action says:
	// RecoveryError.
	Ruled
)

// End is what ends a fatal error.
type End int

// The ends.
const (
	// WithReset: only a reset of the GPU, a reload of the driver or a reboot. Until
	// then the GPU may answer as if nothing were wrong.
	WithReset End = iota
	// WithDriver: the driver keeps track of the error in its recovery action
	// (NVIDIA's catalog, column "Xid 154 linkage"). The error ends when the driver
	// requests no action. Drivers before R565 have no recovery action: WithReset.
	WithDriver
)

// cure is what a person must do. ADDRESS stands for the PCI address.
type cure string

// The cures.
const (
	cureNone    cure = ""
	cureRestart cure = "the program must be started again"
	cureReset   cure = "drain the node, end every program that has the GPU open, this plugin included, and run nvidia-smi --gpu-reset -i ADDRESS, or reboot the node"
	cureReboot  cure = "drain and reboot the node; if it comes back, have the hardware checked"
	cureCable   cure = "check the GPU's power cables"
	cureNVLink  cure = "check the links with nvidia-smi nvlink -e -i ADDRESS, then reset the GPU or reboot the node"
	cureSupport cure = "drain and reboot the node; if it comes back, ask NVIDIA's support"
	cureVGPU    cure = "bring the guest's and the host's driver to versions that fit together"
)

func (c cure) on(pciAddress string) string {
	return strings.ReplaceAll(string(c), "ADDRESS", pciAddress)
}

// nums are XIDs.
type nums []uint64

// Error is a row of the table: XIDs that mean the same.
type Error struct {
	numbers nums
	Class   Class
	// Ends is what ends a fatal error.
	Ends End
	// meaning is what happened, in our words.
	meaning string
	cure    cure
	// catalog is the immediate action in NVIDIA's XID catalog, which determines the
	// class. why is the reason where the class is another one.
	catalog string
	why     string
}

// unknown is an XID that is not in the table, 999 included, which is NVML's number for
// an XID that it does not know itself. It is fatal, as in NVIDIA's device plugin and
// its DRA driver: the price is a taint, and that of the opposite a pod on a broken GPU.
// Unlike there, the driver's recovery action ends it.
func unknown() Error {
	return Error{Class: Fatal, Ends: WithDriver, meaning: "an error that this version does not know", cure: cureSupport}
}

var byNumber = func() map[uint64]Error {
	all := map[uint64]Error{}
	for _, row := range table {
		for _, number := range row.numbers {
			all[number] = row
		}
	}
	return all
}()

// Lookup returns what an XID means. One that nobody knows is fatal.
func Lookup(number uint64) Error {
	row, ok := byNumber[number]
	if !ok {
		return unknown()
	}
	return row
}

// Describe says for people what happened and what to do. gpuInstance is the id of the
// GPU instance in which it happened, nil for the whole GPU.
func (e Error) Describe(pciAddress string, number uint64, gpuInstance *int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %s: XID %d", pciAddress, number)
	if gpuInstance != nil {
		fmt.Fprintf(&b, " in GPU instance %d", *gpuInstance)
	}
	fmt.Fprintf(&b, ": %s", e.meaning)
	if e.cure != cureNone {
		fmt.Fprintf(&b, "; %s", e.cure.on(pciAddress))
	}
	return b.String()
}

// eventTypes are the types of NVML events that concern a GPU's health, and the XID that
// means the same: NVML reports the number for XID events only.
var eventTypes = map[uint64]uint64{
	nvml.EventTypeXidCriticalError:      0,
	nvml.EventTypeDoubleBitEccError:     48,
	nvml.EventTypeDramRetirementFailure: 64,
	nvml.EventTypeGpuUnavailableError:   79,
	nvml.EventTypeNonFatalPoisonError:   94,
	nvml.EventTypeFatalPoisonError:      95,
	nvml.EventTypeGpuRecoveryAction:     154,
}

// EventTypes is the bit mask of the NVML events that concern a GPU's health.
var EventTypes = func() (mask uint64) {
	for kind := range eventTypes {
		mask |= kind
	}
	return mask
}()

// Of returns the XID that an event reports or stands for.
func Of(e nvml.EventData) (number uint64, ok bool) {
	if e.EventType == nvml.EventTypeXidCriticalError {
		return e.EventData, true
	}
	number, ok = eventTypes[e.EventType]
	return number, ok
}
