package profile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// NodeGPU is the state of a GPU of a node, as Changes are computed from it.
type NodeGPU struct {
	gpu.GPU
	// Modes are the current modes.
	Modes gpu.Modes
	// Before are the modes before the application of a profile began that is not complete;
	// zero otherwise. A mode that To does not set returns to this one.
	Before gpu.Modes
	// Live are the existing partitions.
	Live []gpu.Partition
	// Held are the holders of the GPU's devices, without admin access.
	Held []Holder
	// Ours are the placements of static partitions that Tranche created: those of the
	// current layout, and of layouts whose application has begun.
	Ours []gpu.Placement
	// Now is the current layout, To the desired one.
	Now, To Layout
	// Unchanged: the profile leaves the GPU as it is, whatever that is.
	Unchanged bool
}

// Holder is a claim that holds a device of a GPU. Claim names it, for messages.
type Holder struct {
	Claim string
	// Device is the name of the device, Placement is its placement.
	Device    string
	Placement gpu.Placement
}

// Op is the kind of a step.
type Op string

// The kinds of steps, in the order in which they are performed. The memory mode comes
// first, because reloading the driver sets the compute mode.
const (
	// OpMemory puts all GPUs of a vendor into a memory mode.
	OpMemory Op = "memory"
	// OpCompute puts a GPU into a compute mode.
	OpCompute Op = "compute"
	// OpDestroy removes a partition, if it exists.
	OpDestroy Op = "destroy"
	// OpMIG switches MIG on or off.
	OpMIG Op = "mig"
	// OpCreate creates a static partition.
	OpCreate Op = "create"
)

// Step is one change of a GPU.
type Step struct {
	Op Op
	// GPU is the GPU's PCI address.
	GPU    string
	Vendor gpu.Vendor
	// Mode is that of OpMemory, OpCompute and OpMIG ("NPS4", "CPX", "on").
	Mode string
	// Placement is that of OpDestroy and OpCreate.
	Placement gpu.Placement
}

func (s Step) String() string {
	gpuID := gpu.NameOf(s.GPU)
	switch s.Op {
	case OpMemory:
		return fmt.Sprintf("put the %s GPUs into memory mode %s", s.Vendor.Title(), s.Mode)
	case OpCompute:
		return fmt.Sprintf("put GPU %s into compute mode %s", gpuID, s.Mode)
	case OpMIG:
		return fmt.Sprintf("switch MIG %s on GPU %s", s.Mode, gpuID)
	case OpDestroy:
		return "remove partition " + s.Placement.Name()
	}
	return "create partition " + s.Placement.Name()
}

// Changes are the changes of a node's hardware. Changes of what is published and shared
// are not part of them.
type Changes struct {
	// GPUs are the GPUs that change, in PCI order.
	GPUs []GPUChanges
	// Refused says why GPUs cannot have the desired layout. Nothing may be changed then.
	Refused []RefusedError
	// Foreign are partitions that Tranche did not create and that block the change. Nothing
	// may be changed while they exist.
	Foreign []gpu.Partition
	// Shrinking are the names of other GPUs, whose hardware does not change, but which no
	// longer offer some devices.
	Shrinking []string
}

// RefusedError says why a GPU cannot have the desired layout.
type RefusedError struct {
	// GPU is its PCI address.
	GPU string
	// Why names the GPU, too.
	Why string
}

// GPUChanges are the changes of one GPU.
type GPUChanges struct {
	gpu.GPU
	// Steps are in the order in which they are performed. OpMemory is performed once for
	// all GPUs of the vendor, before any other step.
	Steps []Step
	// InTheWay are holders that must release their devices first.
	InTheWay []Holder
	// Keeps are the names of devices that do not change, whether a claim holds them or not:
	// a claim that was allocated one may not be prepared yet.
	Keeps []string
}

// NewChanges compares the current state of GPUs with the desired one. It is pure.
func NewChanges(gpus []NodeGPU) Changes {
	var changes Changes
	memory := changes.memoryModes(gpus)
	for i := range gpus {
		if gpus[i].Unchanged {
			continue
		}
		c := differ{NodeGPU: &gpus[i], changes: &changes, memory: memory[gpus[i].Vendor]}
		c.diffModes()
		c.diffMIG()
		if len(c.steps)+len(c.inTheWay) > 0 {
			changes.GPUs = append(changes.GPUs, GPUChanges{GPU: c.GPU, Steps: c.steps, InTheWay: c.inTheWay, Keeps: c.keeps()})
		}
	}
	slices.SortFunc(changes.GPUs, func(a, b GPUChanges) int { return cmp.Compare(a.Name(), b.Name()) })
	changes.Shrinking = changes.shrinking(gpus)
	return changes
}

// differ computes the changes of one GPU.
type differ struct {
	*NodeGPU
	changes *Changes
	// memory is the memory mode that the GPUs of the vendor change to, empty if it does not
	// change.
	memory string

	steps    []Step
	inTheWay []Holder
	// stays reports whether a placement is the same afterwards, whether a claim holds it or
	// not.
	stays func(gpu.Placement) bool
}

func (c *differ) step(op Op, mode string) {
	c.steps = append(c.steps, Step{Op: op, GPU: c.PCIAddress, Vendor: c.Vendor, Mode: mode})
}

func (c *differ) stepAt(op Op, p gpu.Placement) {
	c.steps = append(c.steps, Step{Op: op, GPU: c.PCIAddress, Vendor: c.Vendor, Placement: p})
}

func (c *differ) refuse(format string, args ...any) {
	c.changes.Refused = append(c.changes.Refused, RefusedError{GPU: c.PCIAddress, Why: "GPU " + c.Name() + " " + fmt.Sprintf(format, args...)})
}

// mustLeave adds the holders of matching placements to those in the way.
func (c *differ) mustLeave(which func(gpu.Placement) bool) {
	for _, h := range c.Held {
		if which(h.Placement.Base()) {
			c.inTheWay = append(c.inTheWay, h)
		}
	}
}

func (c *differ) keeps() []string {
	var names []string
	for _, h := range c.Held {
		if !slices.ContainsFunc(c.inTheWay, func(w Holder) bool { return w.Device == h.Device }) {
			names = append(names, h.Device)
		}
	}
	if c.stays != nil {
		for _, p := range c.Placements {
			if c.stays(p.Base()) {
				names = append(names, p.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func everything(gpu.Placement) bool { return true }

// Vendors returns the vendors of GPUs, each once.
func Vendors(gpus []NodeGPU) []gpu.Vendor {
	all := lists.Map(gpus, func(n NodeGPU) gpu.Vendor { return n.Vendor })
	slices.Sort(all)
	return slices.Compact(all)
}

// Holds reports whether a claim holds a partition.
func (g *NodeGPU) Holds(q gpu.Partition) bool {
	return slices.ContainsFunc(g.Held, func(h Holder) bool { return q.Is(h.Placement) })
}

// shrinks reports whether the desired layout no longer offers some of the GPU's devices.
func (g *NodeGPU) shrinks() bool {
	return slices.ContainsFunc(g.Placements, func(p gpu.Placement) bool { return g.Now.Offers(p) && !g.To.Offers(p) })
}

// shrinking returns the names of the GPUs whose hardware does not change, but which offer
// less than before. Displaced pods must not be scheduled to devices that these GPUs are
// about to withdraw. If no GPU changes, no pod is displaced, and there are none.
func (changes *Changes) shrinking(gpus []NodeGPU) []string {
	if len(changes.GPUs) == 0 {
		return nil
	}
	var names []string
	for i := range gpus {
		g := &gpus[i]
		isChanged := slices.ContainsFunc(changes.GPUs, func(p GPUChanges) bool { return p.PCIAddress == g.PCIAddress })
		if !isChanged && g.shrinks() {
			names = append(names, g.Name())
		}
	}
	slices.Sort(names)
	return names
}
