package nvtools

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// isReset reports whether nvidia-smi is to reset GPUs.
func isReset(args []string) bool {
	return slices.Contains(args, "--gpu-reset") || slices.Contains(args, "-r")
}

// gpuReset is nvidia-smi --gpu-reset [-i <uuids or addresses>]. What it prints is
// what people report of the real one (NVIDIA/gpu-operator#118, mig-parted#181).
func gpuReset(m machine, args []string, std streams) int {
	ids := ""
	for i := 0; i < len(args); i++ {
		name, inline, isInline := strings.Cut(args[i], "=")
		switch name {
		case "-r", "--gpu-reset":
		case "-i", "--id":
			if !isInline && i+1 < len(args) {
				i++
				inline = args[i]
			}
			ids = inline
		default:
			fmt.Fprintf(std.out, "Option %q is not recognized.\n", name)
			return smiInvalid
		}
	}
	gpus := m.named(ids)
	if len(gpus) == 0 {
		fmt.Fprintln(std.out, "No devices were found")
		return smiNoDevice
	}
	for _, c := range gpus {
		if code := m.reset(c.pci, std); code != 0 {
			return code
		}
	}
	fmt.Fprintln(std.out, "All done.")
	return 0
}

// named are the GPUs of a list of UUIDs and addresses, all for none.
func (m machine) named(ids string) []procGPU {
	all := m.gpus()
	if ids == "" {
		return all
	}
	var named []procGPU
	for id := range strings.SplitSeq(ids, ",") {
		i := slices.IndexFunc(all, func(c procGPU) bool { return c.uuid == id || smiAddress(c.pci) == smiAddress(id) })
		if i < 0 {
			return nil
		}
		named = append(named, all[i])
	}
	return named
}

// smiAddress is a PCI address as nvidia-smi prints it: "00000000:1B:00.0".
func smiAddress(pci string) string {
	domain, rest, ok := strings.Cut(strings.ToUpper(pci), ":")
	if !ok {
		return pci
	}
	return fmt.Sprintf("%08s:%s", domain, rest)
}

// Ways to be refused. The numbers are those of nvidia-smi(1), RETURN VALUE.
var (
	errGPUInUse     = errors.New("in use")
	errGPUNoReset   = errors.New("not supported")
	errGPULost      = errors.New("lost")
	smiResetAnswers = map[error]struct {
		format string
		code   int
	}{
		errGPUInUse: {"The following GPUs could not be reset:\n  GPU %s: In use by another client\n\n" +
			"1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi). " +
			"Please first kill all processes using this device and all compute applications running in the system.\n", 255},
		errGPUNoReset: {"Resetting GPU %s is not supported.\n", smiNotSupported},
		errGPULost:    {"Unable to determine the device handle for GPU%s: GPU is lost.  Reboot the system to recover this GPU\n", 15},
	}
)

func (m machine) reset(pci string, std streams) int {
	err := m.tryReset(pci)
	if err == nil {
		fmt.Fprintf(std.out, "GPU %s was successfully reset.\n", smiAddress(pci))
		return 0
	}
	if answer, ok := smiResetAnswers[err]; ok {
		fmt.Fprintf(std.out, answer.format, smiAddress(pci))
		return answer.code
	}
	fmt.Fprintln(std.err, err)
	return 1
}

func (m machine) tryReset(pci string) error {
	store := nvstate.Store(string(m))
	faults, file := m.resetFaults()
	if slices.Contains(faults.Lost, pci) {
		return errGPULost
	}
	var fault nvstate.ResetFault
	err := changed(store, string(m), func(st *nvstate.State) error {
		fault = st.NextReset(faults.Resets, pci, file)
		return nil
	})
	if err != nil {
		return err
	}
	time.Sleep(fault.Delay.Duration)
	for fault.Hang && slices.Contains(m.resets(), fault) {
		time.Sleep(hangPoll)
	}
	if fault.Refused {
		return errGPUNoReset
	}
	session := flock.New(nvstate.SessionLock(string(m)))
	switch alone, err := session.TryLock(); {
	case err != nil:
		return err
	case !alone:
		return errGPUInUse
	}
	defer session.Close()
	err = changed(store, string(m), func(st *nvstate.State) error {
		faults, _ := m.resetFaults()
		if slices.ContainsFunc(slices.Concat(st.Processes, faults.Processes), func(p nvstate.Process) bool { return p.GPU == pci }) {
			return errGPUInUse
		}
		g, ok := st.GPU(pci)
		if !ok {
			return errGPULost
		}
		g.Reset()
		return nil
	})
	if err != nil {
		return err
	}
	return m.recovered(pci)
}

// hangPoll is how often a program that hangs looks whether it may go on.
const hangPoll = 10 * time.Millisecond

func changed(store *disk.Store[nvstate.State], root string, change func(*nvstate.State) error) error {
	return store.Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(root)
		}
		return st, change(st)
	})
}

// resetFile is what faults.yaml has to do with resets.
type resetFile struct {
	Resets    []nvstate.ResetFault `json:"resets"`
	Processes []nvstate.Process    `json:"processes"`
	Lost      []string             `json:"lost"`
}

// resetFaults are those of now, and the version of the file. A file that cannot be
// read is none, as with faults.
func (m machine) resetFaults() (resetFile, disk.FileID) {
	file, err := disk.Identify(m.faultsPath())
	if err != nil {
		return resetFile{}, file
	}
	var faults resetFile
	data, err := os.ReadFile(m.faultsPath())
	if err == nil {
		err = yaml.Unmarshal(data, &faults)
	}
	if err != nil {
		return resetFile{}, file
	}
	return faults, file
}

func (m machine) resets() []nvstate.ResetFault {
	faults, _ := m.resetFaults()
	return faults.Resets
}

// recovered takes what a reset puts right out of faults.yaml, and leaves what is not
// known here as it is.
func (m machine) recovered(pci string) error {
	data, err := os.ReadFile(m.faultsPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var faults map[string]any
	if err := yaml.Unmarshal(data, &faults); err != nil {
		return err
	}
	before, _ := faults["recovery"].([]any)
	after := slices.DeleteFunc(slices.Clone(before), func(entry any) bool {
		recovery, _ := entry.(map[string]any)
		return recovery["gpu"] == pci
	})
	if len(after) == len(before) {
		return nil
	}
	faults["recovery"] = after
	if data, err = yaml.Marshal(faults); err != nil {
		return err
	}
	return disk.ReplaceFile(m.faultsPath(), data)
}
