package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Vendor is who made a GPU. It is published as the attribute "vendor".
type Vendor string

// The vendors.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// Title is how the vendor writes its name, for people.
func (v Vendor) Title() string { return strings.ToUpper(string(v)) }

// VendorOf is the vendor in whose domain an extended resource is: NVIDIA for
// nvidia.com/gpu.
func VendorOf(resource string) (Vendor, bool) {
	domain, _, _ := strings.Cut(resource, "/")
	for _, vendor := range []Vendor{NVIDIA, AMD} {
		if domain == string(vendor)+".com" {
			return vendor, true
		}
	}
	return "", false
}

// Type says what kind of device a placement is. It is published as the
// attribute "type", and the device classes select by it.
type Type string

// The types of devices.
const (
	// TypeGPU is a whole GPU.
	TypeGPU Type = "gpu"
	// TypeMIG is an NVIDIA Multi-Instance GPU partition.
	TypeMIG Type = "mig"
	// TypeXCP is an AMD compute partition, after the driver's word for it
	// (accelerator complex partition).
	TypeXCP Type = "xcp"
	// TypeShare is a part of a GPU, or of a partition, that several claims hold
	// at once.
	TypeShare Type = "share"
	// TypeMonitor is a GPU for those who only look at it, with all its partitions, whoever holds
	// them. It takes nothing of the GPU, and is allocated with admin access only.
	TypeMonitor Type = "monitor"
)

// FollowsMode reports whether partitions of the type are there because the whole
// GPU is in the mode that has them. Nobody makes or destroys a single one, so
// none is ever foreign, and releasing one changes nothing.
func (t Type) FollowsMode() bool { return t == TypeXCP }

// Isolation says what keeps the memory of one holder from another.
type Isolation string

// The kinds of isolation.
const (
	// IsolationHardware is a limit that the GPU itself enforces.
	IsolationHardware Isolation = "hardware"
	// IsolationKernel is a limit that the kernel driver enforces, on memory that
	// the GPU itself would let everybody reach.
	IsolationKernel Isolation = "kernel"
	// IsolationUntested is a limit that the kernel should enforce by its documentation, and that was
	// never seen to work on such a GPU.
	IsolationUntested Isolation = "kernel-untested"
	// IsolationCooperative is a limit that stops accidents and no adversary: a
	// process can get around it.
	IsolationCooperative Isolation = "cooperative"
	// IsolationNone means that nothing keeps holders to what they have.
	IsolationNone Isolation = "none"
)

// GPU is one physical GPU with all its placements. Files on nodes contain it: the JSON keys do not change.
type GPU struct {
	// PCIAddress identifies the GPU for as long as it stays in its slot:
	// "0000:c1:00.0". UUID, index and minor are facts about it, never keys.
	PCIAddress string `json:"pciAddress"`
	Vendor     Vendor `json:"vendor"`
	// Index is the GPU's place in the vendor's own enumeration.
	Index int `json:"index"`
	// Minor is the number in the name of the device node.
	Minor int    `json:"minor"`
	UUID  string `json:"uuid,omitempty"`
	// ProductName is the marketing name that the vendor's library reports.
	ProductName string `json:"productName,omitempty"`
	// PCIID is the GPU's device and vendor number as mig-parted writes them
	// ("0x233010DE"), PCISubsystemID that of the board. Empty when the machine does
	// not say.
	PCIID          string `json:"pciID,omitempty"`
	PCISubsystemID string `json:"pciSubsystemID,omitempty"`
	// Architecture is the vendor's name of the chip generation, in its spelling: "Ada Lovelace",
	// "gfx942".
	Architecture string `json:"architecture,omitempty"`
	// DriverVersion is the version of the kernel driver, as it prints it.
	DriverVersion string `json:"driverVersion,omitempty"`
	// CUDAComputeCapability is that of an NVIDIA GPU ("9.0"), and CUDADriverVersion the newest
	// CUDA version that its driver supports ("13.0"). They are empty if the driver does not
	// report them.
	CUDAComputeCapability string `json:"cudaComputeCapability,omitempty"`
	CUDADriverVersion     string `json:"cudaDriverVersion,omitempty"`
	// Partitionable: the GPU can be partitioned on this machine, whatever its mode is now.
	Partitionable bool `json:"partitionable,omitempty"`
	// MemoryMode is the memory mode that an AMD GPU is in, as its driver spells
	// it ("NPS1"); empty for GPUs that know none.
	MemoryMode string `json:"memoryMode,omitempty"`
	// Modes are the memory modes that an AMD GPU can be put into, with the compute
	// modes ("SPX") that go with each, the whole GPU first. Nil for GPUs that cannot be partitioned.
	Modes map[string][]string `json:"modes,omitempty"`
	// Memory is the GPU's memory in bytes, with what the driver keeps for
	// itself; what a holder can use is in the placements.
	Memory int64 `json:"memoryBytes,omitempty"`
	// ComputeUnits is the number of streaming multiprocessors (NVIDIA) or compute units (AMD)
	// of the whole GPU, whatever it offers; zero when the vendor does not report it.
	ComputeUnits int64 `json:"computeUnits,omitempty"`
	// NUMANode is the node that the GPU hangs on, nil when the machine does
	// not say.
	NUMANode *int64 `json:"numaNode,omitempty"`
	// PCIeRoot is the root complex above the GPU ("pci0000:00"), empty when
	// the machine does not say.
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// LinkGroup is equal for GPUs of the node of which each has a direct link to each of the others:
	// NVLink, also through NVSwitches, or XGMI. It is empty if there is none, or if that is not known.
	LinkGroup string `json:"linkGroup,omitempty"`
	// UntestedLimits: memory limits by control group were never tried on such a GPU. They guarantee
	// nothing.
	UntestedLimits bool `json:"untestedLimits,omitempty"`
	// Counters is what the GPU has to give. The placements that are in use
	// together may never take more.
	Counters Counters `json:"counters,omitempty"`
	// Placements is every device of the GPU, the most preferred first.
	Placements []Placement `json:"placements,omitempty"`
	// OtherMIG is what the GPU offers in the MIG mode that it is not in, where it
	// changes the mode by a reset only, as on Ampere. It is nil for all others:
	// their placements are those of both modes, or the mode is not ours to change.
	OtherMIG *Offer `json:"otherMIG,omitempty"`
}

// Offer is what a GPU has to give in one of its modes.
type Offer struct {
	Counters   Counters    `json:"counters,omitempty"`
	Placements []Placement `json:"placements,omitempty"`
}

// Name is the stable name of the GPU, made of its PCI address:
// "gpu-0000-c1-00-0". It is the name of the whole GPU's device and of its counter
// set, and the beginning of every device name of the GPU.
func (g *GPU) Name() string { return NameOf(g.PCIAddress) }

// Monitor is the device by which one looks at a GPU.
func Monitor(pciAddress string) Placement { return Placement{GPU: pciAddress, Type: TypeMonitor} }

// Placement returns the placement with the given device name.
func (g *GPU) Placement(name string) (Placement, bool) {
	for _, p := range g.Placements {
		if p.Name() == name {
			return p, true
		}
	}
	return Placement{}, false
}

// Placement is one concrete way to use a GPU: a profile at a position. The
// whole GPU is the placement without partitions.
type Placement struct {
	// GPU is the PCI address of the GPU.
	GPU string `json:"gpu"`
	// Type distinguishes whole GPUs and the kinds of partitions.
	Type Type `json:"type"`
	// Profile is the name that the vendor gives the size ("1g.10gb"; AMD's compute mode in
	// lower case, "cpx"). A whole NVIDIA GPU has none, a whole AMD GPU that can
	// be partitioned has "spx".
	Profile string `json:"profile,omitempty"`
	// Start is the first memory slice of a MIG placement, and the index of an AMD
	// partition among those of its mode.
	Start int `json:"start,omitempty"`
	// Size is the number of memory slices of a MIG placement.
	Size int `json:"size,omitempty"`
	// Memory is what a holder can use, in bytes.
	Memory int64 `json:"memoryBytes,omitempty"`
	// ComputeUnits is the number of streaming multiprocessors (NVIDIA) or
	// compute units (AMD), zero when the vendor does not report it.
	ComputeUnits int64 `json:"computeUnits,omitempty"`
	// Engines counts the media engines by capacity name ("decoders").
	Engines map[string]int64 `json:"engines,omitempty"`
	// Isolation says what guards the memory.
	Isolation Isolation `json:"isolation,omitempty"`
	// Consumes is what the placement takes from the counters of its GPU.
	Consumes Counters `json:"consumes,omitempty"`
	// Share is set on what several claims hold at once. Type is then TypeShare, and
	// everything else is that of what is shared.
	Share *Share `json:"share,omitempty"`
	// StaticOnly: the placement is offered where a profile has a static partition, and not
	// otherwise, because other positions of its profile serve claims as well.
	StaticOnly bool `json:"staticOnly,omitempty"`
}

// Name is the device name. It alone must say which piece of which GPU is
// meant, because an allocation result carries nothing else.
func (p Placement) Name() string {
	if p.Share != nil {
		return ShareName(p.Base().Name(), p.Share.By)
	}
	switch p.Type {
	case TypeGPU:
		return NameOf(p.GPU)
	case TypeMonitor:
		return NameOf(p.GPU) + "-" + string(TypeMonitor)
	}
	return partitionName(p.GPU, p.Type, p.Profile, p.Start)
}

// GPUName is the name of the GPU that the placement is part of.
func (p Placement) GPUName() string { return NameOf(p.GPU) }

// Partition is a piece of a GPU that exists in the hardware right now,
// whoever made it.
type Partition struct {
	// GPU is the PCI address of the GPU.
	GPU string
	// Profile, Start and Size are those of the placement that it fills.
	Profile     string
	Start, Size int
	// Type is the kind of partition.
	Type Type
	// UUID is the vendor's identifier, empty while the partition is half made.
	UUID string
	// Complete is false for what a crash left half made: it holds room on the
	// GPU and nothing can run in it.
	Complete bool
	// ID is the vendor's own handle, for people: "GI 3".
	ID string
}

// Name is the name of the device that the partition is, or would be.
func (p Partition) Name() string {
	return p.Placement().Name()
}

// Placement returns where the partition is.
func (p Partition) Placement() Placement {
	return Placement{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size}
}

// Label names the partition within what the API takes as a taint's value:
// "1g.10gb-plus-me_4".
func (p Partition) Label() string {
	return spellVariant.Replace(p.Profile) + "_" + strconv.Itoa(p.Start)
}

// Is reports whether the partition fills exactly this placement, or what it is a
// share of.
func (p Partition) Is(q Placement) bool {
	q = q.Base()
	return p.GPU == q.GPU && p.Type == q.Type && p.Profile == q.Profile && p.Start == q.Start
}

// Overlaps reports whether the partition takes room that the placement needs.
// A whole GPU needs all of it, and so does another mode.
func (p Partition) Overlaps(q Placement) bool {
	q = q.Base()
	if p.GPU != q.GPU {
		return false
	}
	if q.Type == TypeGPU {
		return true
	}
	if p.Type.FollowsMode() {
		return p.Profile != q.Profile || p.Start == q.Start
	}
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// PCIIDOf spells a PCI device and vendor number as mig-parted does. It is empty for
// a vendor of zero, which is nobody's.
func PCIIDOf(device, vendor uint16) string {
	if vendor == 0 {
		return ""
	}
	return fmt.Sprintf("0x%04X%04X", device, vendor)
}

// SortGPUs puts GPUs in PCI order, as their names sort. That order is policy:
// the scheduler goes through a pool's slices in order and takes the first fit, so one
// GPU fills up before the next is partitioned.
func SortGPUs(gpus []GPU) {
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.Name(), b.Name()) })
}
