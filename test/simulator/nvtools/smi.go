package nvtools

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// RunSMI is nvidia-smi of the simulated machine in a folder, without a process of its
// own. It returns what the program prints and what it ends with.
func RunSMI(root string, args ...string) (said []byte, exitCode int) {
	var out bytes.Buffer
	exitCode = smi(machine(root), args, nil, streams{out: &out, err: &out})
	return out.Bytes(), exitCode
}

// smi is nvidia-smi. Without arguments it says what its container was given.
func smi(m machine, args, env []string, std streams) int {
	if len(args) > 0 && args[0] == "compute-policy" {
		return computePolicy(m, args[1:], std)
	}
	if isReset(args) {
		return gpuReset(m, args, std)
	}
	fmt.Fprintf(std.out, "NVIDIA-SMI %s (simulated)   Driver Version: %s\n", version(), version())
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidia-caps/nvidia-cap*"} {
		nodes, _ := filepath.Glob(pattern)
		for _, node := range nodes {
			fmt.Fprintln(std.out, "  "+node)
		}
	}
	variables := slices.DeleteFunc(slices.Sorted(slices.Values(env)), func(v string) bool {
		return !strings.HasPrefix(v, "NVIDIA_") && !strings.HasPrefix(v, "TRANCHE_") && !strings.HasPrefix(v, "CUDA_")
	})
	for _, v := range variables {
		fmt.Fprintln(std.out, "  "+v)
	}
	return 0
}

// sliceNames are the lengths of time slices by the number that nvidia-smi knows them
// by.
var sliceNames = []string{"DEFAULT", "SHORT", "MEDIUM", "LONG"}

// Ends of nvidia-smi (nvidia-smi(1), RETURN VALUE).
const (
	smiInvalid      = 2
	smiNotSupported = 3
	smiNoDevice     = 6
)

// computePolicy is nvidia-smi compute-policy -i <uuid or address> --set-timeslice <n>.
func computePolicy(m machine, args []string, std streams) int {
	id, value := "", ""
	for i := 0; i < len(args); i++ {
		name, inline, isInline := strings.Cut(args[i], "=")
		if !isInline && i+1 < len(args) {
			i++
			inline = args[i]
		}
		switch name {
		case "-i", "--id":
			id = inline
		case "--set-timeslice":
			value = inline
		default:
			fmt.Fprintf(std.out, "Option %q is not recognized.\n", name)
			return smiInvalid
		}
	}
	length, err := strconv.Atoi(value)
	if err != nil || length < 0 || length >= len(sliceNames) {
		fmt.Fprintf(std.out, "Invalid timeslice %q\n", value)
		return smiInvalid
	}
	gpus := slices.DeleteFunc(m.gpus(), func(c procGPU) bool { return id != "" && c.uuid != id && c.pci != id })
	if len(gpus) == 0 {
		fmt.Fprintln(std.out, "No devices were found")
		return smiNoDevice
	}
	for _, c := range gpus {
		if faults := m.faults(); slices.Contains(faults.NoTimeSlices, "*") || slices.Contains(faults.NoTimeSlices, c.pci) {
			fmt.Fprintf(std.out, "Failed to set timeslice policy with value %s for GPU %s : Not Supported\n", sliceNames[length], c.pci)
			return smiNotSupported
		}
		if err := SetTimeSlice(string(m), c.uuid, length); err != nil {
			fmt.Fprintln(std.err, err)
			return 1
		}
		fmt.Fprintf(std.out, "Set timeslice config to %s for GPU %s\n", sliceNames[length], c.pci)
	}
	return 0
}

// timeSlices are the lengths by UUID, as nvidia-smi numbers them.
type timeSlices map[string]int

func sliceStore(root string) *disk.Store[timeSlices] {
	return &disk.Store[timeSlices]{
		Path:  filepath.Join(root, "timeslices.json"),
		Lock:  filepath.Join(root, "timeslices.lock"),
		Check: func(*timeSlices) error { return nil },
		Clone: func(s *timeSlices) *timeSlices {
			c := timeSlices{}
			for k, v := range *s {
				c[k] = v
			}
			return &c
		},
	}
}

// SetTimeSlice sets the length of a GPU's time slices on the machine in a folder.
func SetTimeSlice(root, uuid string, length int) error {
	return sliceStore(root).Update(func(s *timeSlices) (*timeSlices, error) {
		s = cmp.Or(s, &timeSlices{})
		(*s)[uuid] = length
		return s, nil
	})
}

// TimeSlice is the length of a GPU's time slices, "DEFAULT" if nobody has set it.
func TimeSlice(root, uuid string) (string, error) {
	s, err := sliceStore(root).Read()
	if err != nil || s == nil {
		return sliceNames[0], err
	}
	length := (*s)[uuid]
	if length < 0 || length >= len(sliceNames) {
		return "", fmt.Errorf("simulated machine in %s: time slice %d of GPU %s is none that there is", root, length, uuid)
	}
	return sliceNames[length], nil
}

// ResetTimeSlices is what loading the driver does to the GPUs.
func ResetTimeSlices(root string) error {
	if err := os.Remove(filepath.Join(root, "timeslices.json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
