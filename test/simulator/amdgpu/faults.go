package amdgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Faults is the section "amd" of <Root>/faults.yaml: what goes wrong from now on,
// and who uses the GPUs. The file may be written at any time by hand, by a test
// or by SetFaults; no file means no faults.
type Faults struct {
	Writes []WriteFault `json:"writes,omitempty"`
	// Processes have KFD open.
	Processes []Process `json:"processes,omitempty"`
	// Nodes are partitions that are not to be had although the mode has them.
	Nodes []NodeFault `json:"nodes,omitempty"`
	// Resetting are the addresses of GPUs that are being reset: their modes can
	// be neither read nor written (EPERM).
	Resetting []string `json:"resetting,omitempty"`
	// Lost are the addresses of GPUs that fell off the bus.
	Lost []string `json:"lost,omitempty"`
	// RAS are errors that the GPUs count.
	RAS []RAS `json:"ras,omitempty"`
	// MemoryModes are changes that somebody else made.
	MemoryModes []MemoryModeFault `json:"memoryModes,omitempty"`
	// MemoryModeLost: a load of the driver does not bring the memory mode that was
	// asked for.
	MemoryModeLost bool `json:"memoryModeLost,omitempty"`
	// Driver is what goes wrong when the driver is unloaded or loaded with
	// modprobe.
	Driver []DriverFault `json:"driver,omitempty"`
	// Holders are other kernel modules that use the driver, which cannot be taken
	// out as long as they do.
	Holders []string `json:"holders,omitempty"`
}

// WriteFault makes a write fail, take longer or hang.
type WriteFault struct {
	// GPU is a PCI address, or * for every GPU.
	GPU string `json:"gpu"`
	// File is one of FaultFiles.
	File string `json:"file"`
	// Error is what the write answers (EBUSY, EIO, …), and nothing changes; but
	// after EIO of a switch KFD has no node of the GPU until another switch, or a
	// load of the driver, brings it up.
	Error Errno `json:"error,omitempty"`
	// Ignored: the write succeeds and changes nothing.
	Ignored bool `json:"ignored,omitempty"`
	// Times is how often; 0 for ever. Writing the file restarts the count.
	Times int `json:"times,omitempty"`
	// Delay comes before the answer.
	Delay metav1.Duration `json:"delay,omitempty"`
	// Hang holds the write "before" or "after" it took effect, until the file no
	// longer has this entry.
	Hang string `json:"hang,omitempty"`
	// Process starts just before the write, and stays: it came between the
	// writer's look and the write.
	Process *Process `json:"process,omitempty"`
}

// When a write hangs.
const (
	hangBefore = "before"
	hangAfter  = "after"
)

// NodeFault takes partitions away.
type NodeFault struct {
	// GPU is a PCI address, or * for every GPU.
	GPU string `json:"gpu"`
	// Partitions are the indexes; none: all.
	Partitions []int `json:"partitions,omitempty"`
	// Missing is what is not there: "kfd", the node in KFD's topology, or "render",
	// the device node.
	Missing string `json:"missing"`
	// Late: the device node comes so long after a switch; with "render" only.
	Late metav1.Duration `json:"late,omitempty"`
}

const (
	missingKFD    = "kfd"
	missingRender = "render"
)

// RAS is a count of errors in one part of a GPU.
type RAS struct {
	// GPU is a PCI address.
	GPU string `json:"gpu"`
	// Block is one of umc (the memory), gfx, sdma, mmhub, xgmi_wafl, pcie_bif;
	// none is umc.
	Block         string `json:"block,omitempty"`
	Uncorrectable int    `json:"uncorrectable,omitempty"`
	Correctable   int    `json:"correctable,omitempty"`
}

func (r RAS) block() string {
	if r.Block == "" {
		return rasBlocks[0]
	}
	return r.Block
}

// MemoryModeFault is a memory mode that a GPU is in, whatever it was in.
type MemoryModeFault struct {
	// GPU is a PCI address, or * for every GPU.
	GPU  string         `json:"gpu"`
	Mode xcp.MemoryMode `json:"mode"`
}

// FaultFiles lists the names that WriteFault.File knows.
func FaultFiles() []string { return []string{computeFile, memoryFile, selectorFile} }

func checkGPU(gpuID string) error {
	if gpuID != "*" && !models.IsPCIAddress(gpuID) {
		return fmt.Errorf("gpu: %q is neither * nor an address like 0000:05:00.0", gpuID)
	}
	return nil
}

func (w WriteFault) check() error {
	if err := checkGPU(w.GPU); err != nil {
		return err
	}
	switch {
	case !slices.Contains(FaultFiles(), w.File):
		return fmt.Errorf("file: unknown file %q: choose one of %s", w.File, strings.Join(FaultFiles(), ", "))
	case w.Times < 0:
		return fmt.Errorf("times: %d is negative", w.Times)
	case w.Delay.Duration < 0:
		return fmt.Errorf("delay: %s is negative", w.Delay.Duration)
	case w.Hang != "" && w.Hang != hangBefore && w.Hang != hangAfter:
		return fmt.Errorf("hang: %q is neither %s nor %s", w.Hang, hangBefore, hangAfter)
	case w.Error != 0 && w.Ignored:
		return errors.New("ignored: a write that fails is not one that succeeds; leave out error or ignored")
	case w.Error == 0 && !w.Ignored && w.Delay.Duration == 0 && w.Hang == "" && w.Process == nil:
		return errors.New("error: it does nothing; give error, ignored, delay, hang or process")
	}
	if w.Process != nil {
		if err := w.Process.check(); err != nil {
			return fmt.Errorf("process.%w", err)
		}
	}
	return nil
}

func (n NodeFault) check() error {
	if err := checkGPU(n.GPU); err != nil {
		return err
	}
	switch {
	case n.Missing != missingKFD && n.Missing != missingRender:
		return fmt.Errorf("missing: %q is neither %s nor %s", n.Missing, missingKFD, missingRender)
	case n.Late.Duration < 0:
		return fmt.Errorf("late: %s is negative", n.Late.Duration)
	case n.Late.Duration > 0 && n.Missing != missingRender:
		return fmt.Errorf("late: only what is missing as %s can come late", missingRender)
	}
	for i, p := range n.Partitions {
		if p < 0 || p >= models.MinorsPerGPU {
			return fmt.Errorf("partitions[%d]: %d is not between 0 and %d", i, p, models.MinorsPerGPU-1)
		}
	}
	return nil
}

func (r RAS) check() error {
	switch {
	case !models.IsPCIAddress(r.GPU):
		return fmt.Errorf("gpu: %q is not an address like 0000:05:00.0", r.GPU)
	case !slices.Contains(rasBlocks, r.block()):
		return fmt.Errorf("block: unknown block %q: choose one of %s", r.Block, strings.Join(rasBlocks, ", "))
	case r.Uncorrectable < 0:
		return fmt.Errorf("uncorrectable: %d is negative", r.Uncorrectable)
	case r.Correctable < 0:
		return fmt.Errorf("correctable: %d is negative", r.Correctable)
	}
	return nil
}

func (m MemoryModeFault) check() error {
	if err := checkGPU(m.GPU); err != nil {
		return err
	}
	if !slices.Contains(memoryModes, m.Mode) {
		return fmt.Errorf("mode: unknown memory mode %q: choose one of %s", m.Mode, list(memoryModes))
	}
	return nil
}

// Check finds what is wrong with faults; every error names the key.
func (f *Faults) Check() error {
	for i, w := range f.Writes {
		if err := w.check(); err != nil {
			return fmt.Errorf("writes[%d].%w", i, err)
		}
	}
	for i, p := range f.Processes {
		if err := p.check(); err != nil {
			return fmt.Errorf("processes[%d].%w", i, err)
		}
	}
	for i, n := range f.Nodes {
		if err := n.check(); err != nil {
			return fmt.Errorf("nodes[%d].%w", i, err)
		}
	}
	for key, gpus := range map[string][]string{"resetting": f.Resetting, "lost": f.Lost} {
		for i, gpuID := range gpus {
			if !models.IsPCIAddress(gpuID) {
				return fmt.Errorf("%s[%d]: %q is not an address like 0000:05:00.0", key, i, gpuID)
			}
		}
	}
	for i, r := range f.RAS {
		if err := r.check(); err != nil {
			return fmt.Errorf("ras[%d].%w", i, err)
		}
	}
	for i, m := range f.MemoryModes {
		if err := m.check(); err != nil {
			return fmt.Errorf("memoryModes[%d].%w", i, err)
		}
	}
	for i, d := range f.Driver {
		if err := d.check(); err != nil {
			return fmt.Errorf("driver[%d].%w", i, err)
		}
	}
	for i, name := range f.Holders {
		if !moduleName.MatchString(name) {
			return fmt.Errorf("holders[%d]: %q is not the name of a kernel module", i, name)
		}
	}
	return nil
}

// about reports whether a fault of a node is about a partition.
func (n NodeFault) about(what, pci string, partition int) bool {
	return n.Missing == what && (n.GPU == "*" || n.GPU == pci) &&
		(len(n.Partitions) == 0 || slices.Contains(n.Partitions, partition))
}

// missing reports whether a partition's node is not there at all.
func (f *Faults) missing(what, pci string, partition int) bool {
	return slices.ContainsFunc(f.Nodes, func(n NodeFault) bool {
		return n.Late.Duration == 0 && n.about(what, pci, partition)
	})
}

// late is how long after a switch a device node comes, beyond what is usual.
func (f *Faults) late(pci string, partition int) time.Duration {
	var longest time.Duration
	for _, n := range f.Nodes {
		if n.about(missingRender, pci, partition) {
			longest = max(longest, n.Late.Duration)
		}
	}
	return longest
}

// section is what is ours in faults.yaml. The rest is for others, who check it.
const section = "amd"

func faultsPath(root string) string { return filepath.Join(root, "faults.yaml") }

// ParseFaults decodes and checks a faults.yaml; every error names the key.
func ParseFaults(data []byte) (*Faults, error) {
	parts := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &parts); err != nil {
		return nil, fmt.Errorf("not valid faults: %w", err)
	}
	f := &Faults{}
	if parts[section] == nil {
		return f, nil
	}
	ours, err := yaml.Marshal(parts[section])
	if err == nil {
		err = yaml.UnmarshalStrict(ours, f)
	}
	if err != nil {
		return nil, fmt.Errorf("not valid faults: %s: %w", section, err)
	}
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("%s.%w", section, err)
	}
	return f, nil
}

// SetFaults replaces the AMD GPUs' faults of a root, for every process that uses
// it. Those of other GPUs stay.
func SetFaults(root string, f Faults) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("%s.%w", section, err)
	}
	return changeFaults(root, func(old *Faults) { *old = f })
}

// changeFaults rewrites our part of faults.yaml, if it is another afterwards.
func changeFaults(root string, change func(*Faults)) error {
	lock := flock.New(newStore(root).Lock)
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Close()
	data, err := os.ReadFile(faultsPath(root))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	faults, err := ParseFaults(data)
	if err != nil {
		return err
	}
	before, err := yaml.Marshal(faults)
	if err != nil {
		return err
	}
	change(faults)
	after, err := yaml.Marshal(faults)
	if err != nil || string(before) == string(after) {
		return err
	}
	parts := map[string]any{}
	if err := yaml.Unmarshal(data, &parts); err != nil {
		return err
	}
	parts[section] = faults
	if data, err = yaml.Marshal(parts); err != nil {
		return err
	}
	return disk.ReplaceFile(faultsPath(root), data)
}

func currentFaults(root string) (*Faults, error) {
	return disk.ReadFaults(faultsPath(root), ParseFaults)
}
