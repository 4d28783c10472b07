package amd

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// explainBusy says who keeps the GPU from being switched.
func (c *gpuHandle) explainBusy(want xcp.Mode, cause error) error {
	who, err := c.who()
	if err != nil {
		who = sysfs.Processes{}
		c.driver.cfg.Logger.Info("Who uses a GPU cannot be read", "gpu", c.PCIAddress, "reason", err.Error())
	}
	var reason string
	switch {
	case len(who.OnGPU) > 0:
		reason = fmt.Sprintf("%s it; end or move them, and this is retried", sysfs.Listed(who.OnGPU, "uses", "use"))
	case len(who.Others) > 0:
		c.learnHostBusy()
		reason = fmt.Sprintf("nobody uses it, but this kernel switches no GPU while any process of the host uses KFD, and %s; end them or install a newer amdgpu on the node, and this is retried",
			sysfs.Listed(who.Others, "does", "do"))
	default:
		// A process leaves the list before KFD has cleaned up after it, and older kernels
		// switch one GPU at a time.
		reason = "no process is seen to use KFD, so one has only just ended or another GPU is being switched; this is retried"
	}
	return &BusyError{PCIAddress: c.PCIAddress, Mode: want, Reason: reason, cause: cause}
}

// BusyError is a GPU that cannot be switched because somebody uses it.
// errors.Is finds gpu.ErrInUse in it, and the kernel's own answer.
type BusyError struct {
	PCIAddress string
	Mode       xcp.Mode
	// Reason names who is in the way, and says what to do.
	Reason string
	cause  error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("GPU %s cannot be put into mode %s: %s", e.PCIAddress, e.Mode, e.Reason)
}

// Unwrap makes errors.Is work.
func (e *BusyError) Unwrap() []error { return []error{gpu.ErrInUse, e.cause} }

// who lists the processes of the GPU as it is now.
func (c *gpuHandle) who() (sysfs.Processes, error) {
	l, err := c.Look()
	if err != nil {
		return sysfs.Processes{}, err
	}
	return sysfs.ProcessesOf(c.Task, l.GPUIDs())
}

func (d *Driver) setHostBusy(load string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hostBusy = load
}

// learnHostBusy notes that the kernel refuses because of any process of the host. It is called
// only after the whole patience: just after a process has ended, a kernel that counts the
// GPU's own processes refuses, too.
func (c *gpuHandle) learnHostBusy() {
	if load, err := sysfs.LoadID(c.Task); err == nil {
		c.driver.setHostBusy(load)
	}
}

// learnFromSuccess notes that the kernel accepted a switch while other GPUs were in use.
func (c *gpuHandle) learnFromSuccess() {
	if who, err := c.who(); err == nil && len(who.Others) > 0 {
		c.driver.setHostBusy("")
	}
}
