package amdgpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Errno is an error of the kernel that can be written by name.
type Errno unix.Errno

// errnos are those that a write can be made to answer.
var errnos = map[string]unix.Errno{
	"EACCES": unix.EACCES, "EAGAIN": unix.EAGAIN, "EBUSY": unix.EBUSY, "EINTR": unix.EINTR, "EINVAL": unix.EINVAL,
	"EIO": unix.EIO, "ENODEV": unix.ENODEV, "ENOMEM": unix.ENOMEM, "EOPNOTSUPP": unix.EOPNOTSUPP, "EPERM": unix.EPERM,
	"ETIMEDOUT": unix.ETIMEDOUT,
}

// Errnos lists the names that WriteFault.Error knows.
func Errnos() []string { return slices.Sorted(maps.Keys(errnos)) }

// UnmarshalJSON accepts a name: "EBUSY".
func (e *Errno) UnmarshalJSON(data []byte) error {
	var name string
	if err := json.Unmarshal(data, &name); err == nil {
		if n, ok := errnos[name]; ok {
			*e = Errno(n)
			return nil
		}
	}
	return fmt.Errorf("error: %s is none of %s", data, strings.Join(Errnos(), ", "))
}

// MarshalJSON writes the name.
func (e Errno) MarshalJSON() ([]byte, error) { return json.Marshal(unix.ErrnoName(unix.Errno(e))) }

// fire finds the fault that a write meets, and uses up one of its times.
func (k *Kernel) fire(gpuIndex int, name string) (*WriteFault, error) {
	faults, id := k.faults.Read()
	pci := k.inventory.AMD[gpuIndex].PCI
	for i, w := range faults.Writes {
		if w.File != name || (w.GPU != "*" && w.GPU != pci) {
			continue
		}
		if fires, err := k.countFault(i, w.Times, faults, id); err != nil {
			return nil, err
		} else if fires {
			return &w, nil
		}
	}
	return nil, nil
}

// countFault uses up one of a fault's times and says whether there was one left.
// Those of the driver are counted behind those of writes. The count is in the
// state: it survives a restart of the process, and starts again with every new
// faults.yaml.
func (k *Kernel) countFault(index, times int, faults *Faults, id disk.FileID) (fires bool, err error) {
	if times == 0 {
		return true, nil
	}
	all := len(faults.Writes) + len(faults.Driver)
	err = k.store.Update(func(st *state) (*state, error) {
		if st.FaultsFile != id || len(st.FaultCounts) != all {
			st.FaultsFile, st.FaultCounts = id, make([]int, all)
		}
		if st.FaultCounts[index] >= times {
			return nil, nil
		}
		st.FaultCounts[index]++
		fires = true
		return st, nil
	})
	return fires, err
}

// before carries out what a fault does ahead of a write's effect. done says that
// there is to be none.
func (k *Kernel) before(fault *WriteFault, gpuIndex int, name string) (done bool, err error) {
	if fault.Process != nil {
		if err := StartProcess(k.root, *fault.Process); err != nil {
			return true, err
		}
	}
	k.sleep(fault.Delay.Duration)
	if fault.Hang == hangBefore {
		k.hang(*fault)
	}
	switch {
	case fault.Ignored:
		return true, nil
	case fault.Error == 0:
		return false, nil
	case fault.Error == Errno(unix.EIO) && name == computeFile:
		if err := k.breakGPU(gpuIndex); err != nil {
			return true, err
		}
	}
	return true, unix.Errno(fault.Error)
}

// breakGPU leaves a GPU without KFD.
func (k *Kernel) breakGPU(gpuIndex int) error {
	return k.store.Update(func(st *state) (*state, error) {
		st.GPUs[gpuIndex].Broken = true
		st.Generation++
		return st, nil
	})
}

// hangPoll is how often a hanging write looks whether it may go on. It is real
// time: a fake clock would spin.
const hangPoll = 10 * time.Millisecond

func (k *Kernel) hang(fault WriteFault) {
	for {
		faults, _ := k.faults.Read()
		if !slices.ContainsFunc(faults.Writes, func(w WriteFault) bool {
			return w.GPU == fault.GPU && w.File == fault.File && w.Hang == fault.Hang
		}) {
			return
		}
		time.Sleep(hangPoll)
	}
}
