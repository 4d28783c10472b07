package partition

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// GPU is everything that a plan is made from, of one GPU.
type GPU struct {
	gpu.GPU
	// Modes is how the GPU is set now.
	Modes gpu.Modes
	// Before is how it was set when a wish was followed last, while another one is
	// being applied or was given up; zero otherwise. What To leaves as it is, is that.
	Before gpu.Modes
	// Live are the partitions that exist.
	Live []gpu.Partition
	// Held is what claims hold of the GPU. What an admin only looks at is not in it.
	Held []Holder
	// Ours are the placements of partitions that Tranche made to stay: of the shape
	// that the GPU has, and of those that it was about to have.
	Ours []gpu.Placement
	// Now is the shape that the GPU has, To the one that is wanted.
	Now, To profile.Shape
}

// Holder is a claim that holds something of a GPU.
type Holder struct {
	Claim ledger.ClaimRef
	// Device is the name of what it holds, Placement what that is.
	Device    string
	Placement gpu.Placement
}

// Op is what a step does.
type Op string

// The steps, in the order in which they are taken. The memory mode comes first,
// because loading the driver anew sets the compute mode.
const (
	// OpMemory puts all GPUs of a vendor into a memory mode.
	OpMemory Op = "memory"
	// OpCompute puts a GPU into a compute mode.
	OpCompute Op = "compute"
	// OpDestroy takes a partition apart. One that is not there is no error.
	OpDestroy Op = "destroy"
	// OpMIG switches MIG on or off.
	OpMIG Op = "mig"
	// OpCreate makes a partition that stays.
	OpCreate Op = "create"
)

// Step is one change of a GPU.
type Step struct {
	Op Op
	// GPU is the GPU's PCI address, Vendor whose it is.
	GPU    string
	Vendor gpu.Vendor
	// Mode is that of OpMemory, OpCompute and OpMIG ("NPS4", "CPX", "on").
	Mode string
	// Placement is that of OpDestroy and OpCreate.
	Placement gpu.Placement
}

func (s Step) String() string {
	gpuID := gpu.GPUName(s.GPU)
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
	return "make partition " + s.Placement.Name()
}

// Plan is what has to change on a node. Only what changes the hardware is in it:
// what is published, and how it is shared, follows by itself.
type Plan struct {
	// GPUs have something to do, in PCI order.
	GPUs []GPUPlan
	// Refused says why GPUs cannot be what is wanted. Nothing must then be changed.
	Refused []Refusal
	// Foreign are partitions that Tranche did not make and that are in the way.
	// Nothing must be changed while they are there.
	Foreign []gpu.Partition
	// Shrinking are the names of other GPUs: their hardware stays as it is, but they do
	// not offer all of their devices afterwards.
	Shrinking []string
}

// Refusal says why a GPU cannot be what is wanted.
type Refusal struct {
	// GPU is its PCI address.
	GPU string
	// Why names the GPU, too.
	Why string
}

// GPUPlan is what has to change on one GPU.
type GPUPlan struct {
	gpu.GPU
	// Steps are in the order in which they are taken. Those of OpMemory are taken
	// once for all GPUs of the vendor, before any other.
	Steps []Step
	// InTheWay must let go of the GPU before.
	InTheWay []Holder
	// Keeps are the names of the devices whose holders need not: what they hold is the
	// same afterwards. Claims that are not prepared yet can be of such a device, too.
	Keeps []string
}

// NewPlan compares how GPUs are with how they are wanted. It touches nothing.
func NewPlan(gpus []GPU) Plan {
	var plan Plan
	memory := plan.memoryModes(gpus)
	for i := range gpus {
		c := planner{GPU: &gpus[i], plan: &plan, memory: memory[gpus[i].Vendor]}
		c.planModes()
		c.planMIG()
		if len(c.steps)+len(c.inTheWay) > 0 {
			plan.GPUs = append(plan.GPUs, GPUPlan{GPU: c.GPU.GPU, Steps: c.steps, InTheWay: c.inTheWay, Keeps: c.keeps()})
		}
	}
	slices.SortFunc(plan.GPUs, func(a, b GPUPlan) int { return cmp.Compare(a.Name(), b.Name()) })
	plan.Shrinking = plan.shrinking(gpus)
	return plan
}

// planner works out what has to change on one GPU.
type planner struct {
	*GPU
	plan *Plan
	// memory is the memory mode that the GPUs of the vendor are put into, empty: they
	// are in it, or nobody asks for one.
	memory string

	steps    []Step
	inTheWay []Holder
	// stays are placements that are the same afterwards, whether a claim holds them
	// now or not.
	stays func(gpu.Placement) bool
}

func (c *planner) step(op Op, mode string) {
	c.steps = append(c.steps, Step{Op: op, GPU: c.PCIAddress, Vendor: c.Vendor, Mode: mode})
}

func (c *planner) stepAt(op Op, p gpu.Placement) {
	c.steps = append(c.steps, Step{Op: op, GPU: c.PCIAddress, Vendor: c.Vendor, Placement: p})
}

func (c *planner) refuse(format string, args ...any) {
	c.plan.Refused = append(c.plan.Refused, Refusal{GPU: c.PCIAddress, Why: "GPU " + c.Name() + " " + fmt.Sprintf(format, args...)})
}

// mustLeave puts those of the holders in the way that a test names.
func (c *planner) mustLeave(which func(gpu.Placement) bool) {
	for _, h := range c.Held {
		if which(h.Placement.Base()) {
			c.inTheWay = append(c.inTheWay, h)
		}
	}
}

// keeps are the names of the devices whose holders need not leave.
func (c *planner) keeps() []string {
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
