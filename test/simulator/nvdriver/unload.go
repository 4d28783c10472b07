package nvdriver

import (
	"errors"
	"fmt"

	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// errUnloaded says that the driver's module is not in the kernel.
var errUnloaded = errors.New("NVIDIA's driver is not loaded")

// ErrModuleInUse is what UnloadDriver answers while somebody uses the driver.
var ErrModuleInUse = errors.New("rmmod: ERROR: Module nvidia is in use")

// LibraryMissing reports whether faults.yaml says that the driver's library is missing.
func LibraryMissing(root string) (bool, error) {
	faults, err := currentFaults(root)
	if err != nil {
		return false, err
	}
	return faults.LibraryMissing, nil
}

// UnloadDriver takes NVIDIA's driver out of the kernel, as rmmod does. It fails with
// ErrModuleInUse while a process uses a GPU or has a session of NVML. Instances are gone
// then.
func UnloadDriver(root string) error {
	faults, err := currentFaults(root)
	if err != nil {
		return err
	}
	session := flock.New(nvstate.SessionLock(root))
	switch alone, err := session.TryLock(); {
	case err != nil:
		return err
	case !alone:
		return fmt.Errorf("%w: a process has a session of NVML", ErrModuleInUse)
	}
	defer session.Close()
	err = changeMachine(root, false, func(st *nvstate.State) error {
		if n := len(st.Processes) + len(faults.Processes); n > 0 {
			return fmt.Errorf("%w by %d processes", ErrModuleInUse, n)
		}
		loadDriver(st)
		st.Unloaded = true
		return nil
	})
	if err != nil {
		return err
	}
	return nvfiles.RetireModule(root)
}

// LoadDriver puts NVIDIA's driver into the kernel again, as another load than before.
func LoadDriver(root string) error { return restart(root, func(*nvstate.State) {}) }
