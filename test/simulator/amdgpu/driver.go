package amdgpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriverFault makes modprobe fail, take longer or hang, or makes it bring up less
// than it should.
type DriverFault struct {
	// Step is "unload" (modprobe -r amdgpu) or "load" (modprobe amdgpu). Only what
	// does something counts: to load a driver that is loaded is no step.
	Step string `json:"step"`
	// Error is what modprobe says, and nothing changes: with unload "in use", with
	// load "no device", "not found" or "key rejected".
	Error string `json:"error,omitempty"`
	// Times is how often; 0 for ever. Writing the file restarts the count.
	Times int `json:"times,omitempty"`
	// Delay comes before the step.
	Delay metav1.Duration `json:"delay,omitempty"`
	// Hang holds the step, in the kernel, where no signal reaches modprobe, until
	// the file no longer has this entry.
	Hang bool `json:"hang,omitempty"`
	// Missing are the GPUs that a load does not bring up: PCI addresses, or * for
	// all. The next load does, unless a fault says so again.
	Missing []string `json:"missing,omitempty"`
	// MemoryModeLost are the GPUs for which a load does not bring the memory mode
	// that was asked for: PCI addresses, or * for all.
	MemoryModeLost []string `json:"memoryModeLost,omitempty"`
}

// The steps of a driver.
const (
	stepUnload = "unload"
	stepLoad   = "load"
)

// driverErrors are modprobe's words (kmod, tools/modprobe.c; the reasons of a load
// are those of strerror).
var driverErrors = map[string]map[string]string{
	stepUnload: {"in use": "modprobe: FATAL: Module amdgpu is in use."},
	stepLoad: {
		"no device":    "modprobe: ERROR: could not insert 'amdgpu': No such device",
		"key rejected": "modprobe: ERROR: could not insert 'amdgpu': Key was rejected by service",
		"not found":    "modprobe: FATAL: Module amdgpu not found in directory /lib/modules/6.8.0-simulated",
	},
}

var moduleName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,56}$`)

func (d DriverFault) check() error {
	known, ok := driverErrors[d.Step]
	if !ok {
		return fmt.Errorf("step: %q is neither %s nor %s", d.Step, stepUnload, stepLoad)
	}
	if _, ok := known[d.Error]; !ok && d.Error != "" {
		return fmt.Errorf("error: %q is not one of %s's: choose one of %s", d.Error, d.Step, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	for key, gpus := range map[string][]string{"missing": d.Missing, "memoryModeLost": d.MemoryModeLost} {
		for i, gpuID := range gpus {
			if err := checkGPU(gpuID); err != nil {
				return fmt.Errorf("%s[%d].%w", key, i, err)
			}
		}
	}
	brings := len(d.Missing) + len(d.MemoryModeLost)
	switch {
	case d.Times < 0:
		return fmt.Errorf("times: %d is negative", d.Times)
	case d.Delay.Duration < 0:
		return fmt.Errorf("delay: %s is negative", d.Delay.Duration)
	case brings > 0 && d.Step != stepLoad:
		return fmt.Errorf("step: missing and memoryModeLost are about what a %s brings", stepLoad)
	case brings > 0 && d.Error != "":
		return errors.New("error: a load that fails brings nothing; leave out error, or missing and memoryModeLost")
	case brings == 0 && d.Error == "" && d.Delay.Duration == 0 && !d.Hang:
		return errors.New("error: it does nothing; give error, delay, hang, missing or memoryModeLost")
	}
	return nil
}

// about reports whether a list of addresses has a GPU.
func about(gpus []string, pci string) bool {
	return slices.ContainsFunc(gpus, func(c string) bool { return c == "*" || c == pci })
}

// errExit is how a program ends that could not do what it should.
var errExit = errors.New("exit status 1")

// Modprobe is the machine's modprobe, with its output:
//
//	modprobe -r amdgpu
//	modprobe amdgpu
//
// It does not unload a driver that processes or other modules use. After a load the GPUs are
// in the requested memory modes and the compute modes that the driver chooses for these,
// render nodes and gpu_ids may have changed, and error counts are zero.
func (k *Kernel) Modprobe(ctx context.Context, program string, args ...string) ([]byte, error) {
	step, ok := map[string]string{"-r amdgpu": stepUnload, "amdgpu": stepLoad}[strings.Join(args, " ")]
	if program != "modprobe" || !ok {
		return fmt.Appendf(nil, "%s: the simulated machine does not know how to do that with %q", program, args), errExit
	}
	st, err := k.store.Read()
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, errNoState(k.root)
	}
	if st.Unloaded == (step == stepUnload) {
		return nil, nil // as modprobe does without --first-time
	}
	fault, err := k.fireDriver(step)
	if err != nil {
		return nil, err
	}
	wait := fault.Delay.Duration
	if step == stepLoad {
		wait += k.inventory.AMDDriver.Delays.LoadDriver
	}
	if err := k.waitFor(ctx, wait); err != nil {
		return nil, err
	}
	if fault.Hang {
		k.hangDriver(fault)
	}
	if fault.Error != "" {
		k.unseen.Store(step == stepUnload)
		return []byte(driverErrors[step][fault.Error] + "\n"), errExit
	}
	if step == stepLoad {
		return nil, restart(k.root, func(st *state, f *Faults) { st.reloadWith(f, fault) })
	}
	return k.unload()
}

// InstallDriver installs a version of the driver, which the next load brings; empty: the inventory's.
func InstallDriver(root, version string) error {
	return newStore(root).Update(func(st *state) (*state, error) {
		if st == nil {
			return nil, errNoState(root)
		}
		st.Installed = version
		return st, nil
	})
}

// unload unloads the driver, if nobody uses it.
func (k *Kernel) unload() (said []byte, err error) {
	err = k.store.Update(func(st *state) (*state, error) {
		faults, _ := k.faults.Read()
		if len(k.view(st, faults).processes())+len(faults.Holders) > 0 {
			said = []byte(driverErrors[stepUnload]["in use"] + "\n")
			return nil, errExit
		}
		st.Unloaded = true
		return st, nil
	})
	return said, err
}

// waitFor waits as long as the step takes. modprobe can be ended meanwhile.
func (k *Kernel) waitFor(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	over := make(chan struct{})
	go func() {
		k.sleep(d)
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errors.New("signal: killed")
	}
}

// fireDriver finds the fault that a step meets, and uses up one of its times.
func (k *Kernel) fireDriver(step string) (DriverFault, error) {
	faults, id := k.faults.Read()
	for i, d := range faults.Driver {
		if d.Step != step {
			continue
		}
		if fires, err := k.countFault(len(faults.Writes)+i, d.Times, faults, id); err != nil {
			return DriverFault{}, err
		} else if fires {
			return d, nil
		}
	}
	return DriverFault{}, nil
}

func (k *Kernel) hangDriver(fault DriverFault) {
	for {
		faults, _ := k.faults.Read()
		if !slices.ContainsFunc(faults.Driver, func(d DriverFault) bool { return d.Step == fault.Step && d.Hang }) {
			return
		}
		time.Sleep(hangPoll)
	}
}
