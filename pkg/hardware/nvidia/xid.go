package nvidia

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// class is what an XID, an error number of the driver, means for the GPU.
type class int

// The classes.
const (
	// application: a program did something wrong or lost its context. It must
	// be started again; the GPU is well.
	application class = iota + 1
	// informative: worth telling a person, but the GPU goes on working.
	informative
	// fatal: nothing new may be put on the GPU until something is done.
	fatal
	// ruled: the number says only that the driver's recovery action changed;
	// the action says what it means.
	ruled
)

// ending is what ends a fatal state.
type ending int

// The endings.
const (
	// endsWithReset: only a reset of the GPU, a reload of the driver or a
	// reboot does. The GPU may answer as if nothing were wrong.
	endsWithReset ending = iota
	// endsWithDriver: the driver keeps account of it in its recovery action
	// (NVIDIA's catalog, column "Xid 154 linkage"): once it asks for nothing
	// more, it is over. Drivers before R565 have no recovery action; with
	// them it takes a reset.
	endsWithDriver
	// endsWithAnswer: when the GPU answers again, it is over.
	endsWithAnswer
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

// xid is one row of the table: errors that mean the same.
type xid struct {
	numbers nums
	class   class
	ends    ending
	// meaning says in our words what happened.
	meaning string
	cure    cure
	// catalog is the immediate action in NVIDIA's XID catalog, which decides
	// the class; why says why the class is another one where it is.
	catalog string
	why     string
}

// unknownXID is what is not in the table, 999 included, which is NVML's word
// for an XID that it does not know itself. As in NVIDIA's device plugin and its
// DRA driver what is not known to be harmless is fatal: the price is a taint,
// and that of the opposite a pod on a broken GPU. But unlike there it does not
// last: the driver's recovery action ends it.
func unknownXID() xid {
	return xid{class: fatal, ends: endsWithDriver, meaning: "an error that this version does not know", cure: cureSupport}
}

var xidByNumber = func() map[uint64]xid {
	all := map[uint64]xid{}
	for _, row := range xidTable {
		for _, number := range row.numbers {
			all[number] = row
		}
	}
	return all
}()

// lookUpXID finds the row of a number.
func lookUpXID(number uint64) xid {
	row, ok := xidByNumber[number]
	if !ok {
		return unknownXID()
	}
	return row
}

// describe is the text for people about an event.
func (x xid) describe(pciAddress string, number uint64, gpuInstance *int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %s: XID %d", pciAddress, number)
	if gpuInstance != nil {
		fmt.Fprintf(&b, " in GPU instance %d", *gpuInstance)
	}
	fmt.Fprintf(&b, ": %s", x.meaning)
	if x.cure != cureNone {
		fmt.Fprintf(&b, "; %s", x.cure.on(pciAddress))
	}
	return b.String()
}

// watchedEvents are the kinds of NVML events that say something about a GPU's
// health, and the XID that means the same. NVML gives the number with XID
// events alone.
var watchedEvents = map[uint64]uint64{
	nvml.EventTypeXidCriticalError:      0,
	nvml.EventTypeDoubleBitEccError:     48,
	nvml.EventTypeDramRetirementFailure: 64,
	nvml.EventTypeGpuUnavailableError:   79,
	nvml.EventTypeNonFatalPoisonError:   94,
	nvml.EventTypeFatalPoisonError:      95,
	nvml.EventTypeGpuRecoveryAction:     154,
}

// watchedMask is all of watchedEvents.
var watchedMask = func() (mask uint64) {
	for kind := range watchedEvents {
		mask |= kind
	}
	return mask
}()

// xidOf is the XID that an event is or stands for.
func xidOf(e nvml.EventData) (number uint64, ok bool) {
	if e.EventType == nvml.EventTypeXidCriticalError {
		return e.EventData, true
	}
	number, ok = watchedEvents[e.EventType]
	return number, ok
}
