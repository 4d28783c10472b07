package nvstate

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Reset is what a reset does to a GPU: its instances are gone, and the MIG mode is
// the one that was asked for.
func (g *GPU) Reset() {
	g.Instances, g.MIGMode, g.Started = nil, g.PendingMIGMode, time.Now()
}

// ResetFault is how tries to reset a GPU go wrong: those of nvidia-smi, and those
// that NVML makes itself where the MIG mode asks for them. The first one that is
// not used up counts.
type ResetFault struct {
	// GPU is a PCI address, or * for every GPU.
	GPU string `json:"gpu"`
	// Refused is a GPU that cannot be reset, like that of a virtual machine.
	Refused bool `json:"refused,omitempty"`
	// Times is how often; 0 for ever. Writing the file restarts the count.
	Times int `json:"times,omitempty"`
	// Delay is how long nvidia-smi takes.
	Delay metav1.Duration `json:"delay,omitempty"`
	// Hang holds nvidia-smi until the file no longer has this entry.
	Hang bool `json:"hang,omitempty"`
}

// Check says what is wrong, naming the key. The address is checked elsewhere.
func (f ResetFault) Check() error {
	switch {
	case f.Times < 0:
		return fmt.Errorf("times: %d is negative", f.Times)
	case f.Delay.Duration < 0:
		return fmt.Errorf("delay: %s is negative", f.Delay.Duration)
	case !f.Refused && !f.Hang && f.Delay.Duration == 0:
		return errors.New("does nothing; give refused, delay or hang")
	}
	return nil
}

// NextReset is what goes wrong with a try to reset a GPU, nothing by default. It
// uses up one of the fault's times. file is faults.yaml as it is.
func (st *State) NextReset(faults []ResetFault, pci string, file disk.FileID) ResetFault {
	for i, f := range faults {
		if f.GPU != "*" && f.GPU != pci {
			continue
		}
		if f.Times == 0 || st.FireFault("resets", i, f.Times, file) {
			return f
		}
	}
	return ResetFault{}
}

// SessionLock is the file on which every process with an NVML session holds a shared
// lock. A GPU is not reset under one: a session holds the GPUs open (mig-parted
// ends its own before it runs nvidia-smi).
func SessionLock(root string) string { return filepath.Join(root, "nvml.lock") }
