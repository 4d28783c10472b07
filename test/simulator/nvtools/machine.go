package nvtools

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Faults are what goes wrong with the programs, the key mps of faults.yaml.
type Faults struct {
	// StartDelay is how long a daemon takes until it answers; default: 0.1 s.
	StartDelay *metav1.Duration `json:"startDelay,omitempty"`
	// Start is how a daemon starts: "" as it should, fail (it ends at once) or hang
	// (it never answers).
	Start string `json:"start,omitempty"`
	// SingleUser is a daemon that does not know -multiuser-server.
	SingleUser bool `json:"singleUser,omitempty"`
	// IgnoreLimits is a daemon that does not take what it is told.
	IgnoreLimits bool `json:"ignoreLimits,omitempty"`
	// NoTimeSlices are GPUs whose time slices have one length, by PCI address or *.
	NoTimeSlices []string `json:"noTimeSlices,omitempty"`
}

// defaultStartDelay is about what the real daemon takes.
const defaultStartDelay = 100 * time.Millisecond

// Ways to start wrongly.
const (
	startFails = "fail"
	startHangs = "hang"
)

// Check says what is wrong, naming the key.
func (f *Faults) Check() error {
	switch f.Start {
	case "", startFails, startHangs:
	default:
		return fmt.Errorf("start: %q is neither %s nor %s", f.Start, startFails, startHangs)
	}
	if f.StartDelay != nil && f.StartDelay.Duration < 0 {
		return fmt.Errorf("startDelay: %s is negative", f.StartDelay.Duration)
	}
	return nil
}

// machine is the simulated machine whose driver a program belongs to; its folder is
// empty in a container, where only the programs are.
type machine string

// DriverBin is where the programs are in a simulated machine's folder.
const DriverBin = "driver/usr/bin"

// ownMachine finds it by where this program lies.
func ownMachine() machine {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	root, ok := strings.CutSuffix(filepath.Dir(exe), "/"+DriverBin)
	if !ok {
		return ""
	}
	return machine(root)
}

// faults are those of now. A file that cannot be read is none: simulate says what is
// wrong with it.
func (m machine) faults() Faults {
	var file struct {
		MPS Faults `json:"mps"`
	}
	if m == "" {
		return file.MPS
	}
	data, err := os.ReadFile(m.faultsPath())
	if err == nil {
		err = yaml.Unmarshal(data, &file)
	}
	if err != nil {
		return Faults{}
	}
	return file.MPS
}

func (m machine) faultsPath() string { return filepath.Join(string(m), "faults.yaml") }

// procGPU is what /proc/driver/nvidia tells of one.
type procGPU struct{ pci, uuid string }

func (m machine) gpus() []procGPU {
	files, _ := filepath.Glob(filepath.Join(string(m), "proc/driver/nvidia/gpus/*/information"))
	var gpus []procGPU
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if uuid, ok := strings.CutPrefix(lines.Text(), "GPU UUID:"); ok {
				gpus = append(gpus, procGPU{pci: filepath.Base(filepath.Dir(path)), uuid: strings.TrimSpace(uuid)})
			}
		}
		file.Close()
	}
	return gpus
}

// version is that of the driver, by the names of its libraries: they are in
// containers, too.
func version() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	const library = "libcuda.so."
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(exe), "../lib/*", library+"*.*"))
	for _, file := range files {
		return strings.TrimPrefix(filepath.Base(file), library)
	}
	return "unknown"
}
