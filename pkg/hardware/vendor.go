package hardware

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Vendor is one vendor of GPUs on one machine.
type Vendor interface {
	// Name identifies the vendor in the API, in the ledger and in slices.
	Name() gpu.Vendor

	// Open opens the driver. It fails with [ErrNoDriver] when no driver is loaded, or
	// when the machine has no GPU that Tranche can use, and with [ErrRestart] when the driver was
	// replaced and this process cannot use the new one. When a driver is loaded and
	// cannot be used, it returns both an error and an Opened without Driver. The
	// caller tries again later, never twice at the same time.
	Open(ctx context.Context) (*Opened, error)

	// OwnerDRADrivers and OwnerPrograms name what Owners wants evidence of: DRA drivers
	// that publish the vendor's GPUs, and programs that need CAP_SYS_ADMIN on the host, each
	// by its name, or by its path in its container if the name is common.
	OwnerDRADrivers() []string
	OwnerPrograms() []string
	// Owners recognises other systems that serve the vendor's GPUs.
	Owners(e Evidence) []Owner

	// UpgradeSignal says what on a node tells that the vendor's driver is being
	// replaced and must be released ("the node's label a=b"). Empty: nothing does.
	UpgradeSignal(node *corev1.Node) string

	// NodeLabels are the labels of a node that describe its GPUs of this vendor.
	// IsNodeLabel reports whether a label can be one of them.
	NodeLabels(gpus []OfferedGPU) map[string]string
	IsNodeLabel(key string) bool
}

// OfferedGPU is a GPU with the devices that pods can request.
type OfferedGPU struct {
	gpu.GPU
	// Resource returns the extended resource that a device stands for, empty if none.
	Resource func(gpu.Placement) string
	// Static: its partitions stay, whether pods hold them or not.
	Static bool
}

// Opened is a driver that was found.
type Opened struct {
	// Driver is nil if the driver is loaded and cannot be used.
	Driver Driver
	// LoadID identifies this boot and this load of the driver. ReadLoadID reads it
	// again if Driver is nil, and fails with fs.ErrNotExist once the driver is not
	// loaded any more.
	LoadID     string
	ReadLoadID func() (string, error)
	// ProgramRoot is the folder on the host that holds the driver's programs. It is
	// empty for a driver without MPS.
	ProgramRoot string
	// Resume loads the driver's kernel module if Tranche unloaded it and could not
	// load it again. Nil: Tranche never unloads it.
	Resume func(ctx context.Context) error
}

// ErrNoDriver means that a machine has no GPU of a vendor that Tranche can use, or no
// driver for it yet.
var ErrNoDriver = errors.New("no GPU driver on this node")

// ErrRestart means that only a new process can use a driver.
var ErrRestart = errors.New("this process has loaded another library of the driver, and keeps it until it ends")

// NoDriver wraps ErrNoDriver with the vendor and the reason.
func NoDriver(v gpu.Vendor, reason error) error {
	return fmt.Errorf("%w (%s): %w", ErrNoDriver, v.Title(), reason)
}
