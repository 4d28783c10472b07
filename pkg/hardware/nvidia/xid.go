package nvidia

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// xidClass is what an XID means for the GPU.
type xidClass int

// The classes.
const (
	// xidApplication: a program failed or lost its context and must be restarted. The
	// GPU is healthy.
	xidApplication xidClass = iota + 1
	// xidInformative: worth reporting, but the GPU continues to work.
	xidInformative
	// xidFatal: nothing new may be allocated on the GPU until the error ends.
	xidFatal
	// xidRuled: the driver's recovery action changed. What that means, the action says:
	// recoveryError.
	xidRuled
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

// xidError is a row of the table: XIDs that mean the same.
type xidError struct {
	numbers nums
	class   xidClass
	// tracked: the driver keeps track of the error in its recovery action (NVIDIA's catalog,
	// column "Xid 154 linkage"), so it ends when the driver requests no action. Drivers before
	// R565 have no recovery action. Other fatal errors end with a reset of the GPU, a reload of
	// the driver or a reboot; until then the GPU may answer as if nothing were wrong.
	tracked bool
	// meaning is what happened, in our words.
	meaning string
	cure    cure
	// catalog is the immediate action in NVIDIA's XID catalog, which determines the
	// class. why is the reason where the class is another one.
	catalog string
	why     string
}

// unknownXID is an XID that is not in the table, 999 included, which is NVML's number for
// an XID that it does not know itself. It is fatal, as in NVIDIA's device plugin and
// its DRA driver: the price is a taint, and that of the opposite a pod on a broken GPU.
// Unlike there, the driver's recovery action ends it.
func unknownXID() xidError {
	return xidError{class: xidFatal, tracked: true, meaning: "an error that this version does not know", cure: cureSupport}
}

var xidByNumber = func() map[uint64]xidError {
	all := map[uint64]xidError{}
	for _, row := range xidTable {
		for _, number := range row.numbers {
			all[number] = row
		}
	}
	return all
}()

// lookupXID returns what an XID means. One that nobody knows is fatal.
func lookupXID(number uint64) xidError {
	row, ok := xidByNumber[number]
	if !ok {
		return unknownXID()
	}
	return row
}

// describe says for people what happened and what to do. gpuInstance is the id of the
// GPU instance in which it happened, nil for the whole GPU.
func (e xidError) describe(pciAddress string, number uint64, gpuInstance *int) string {
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

// xidOfEventType are the types of NVML events that concern a GPU's health, and the XID that
// means the same: NVML reports the number for XID events only.
var xidOfEventType = map[uint64]uint64{
	nvml.EventTypeXidCriticalError:      0,
	nvml.EventTypeDoubleBitEccError:     48,
	nvml.EventTypeDramRetirementFailure: 64,
	nvml.EventTypeGpuUnavailableError:   79,
	nvml.EventTypeNonFatalPoisonError:   94,
	nvml.EventTypeFatalPoisonError:      95,
	nvml.EventTypeGpuRecoveryAction:     154,
}

// xidEventTypes is the bit mask of the NVML events that concern a GPU's health.
var xidEventTypes = func() (mask uint64) {
	for kind := range xidOfEventType {
		mask |= kind
	}
	return mask
}()

// xidOf returns the XID that an event reports or stands for.
func xidOf(e nvml.EventData) (number uint64, ok bool) {
	if e.EventType == nvml.EventTypeXidCriticalError {
		return e.EventData, true
	}
	number, ok = xidOfEventType[e.EventType]
	return number, ok
}
