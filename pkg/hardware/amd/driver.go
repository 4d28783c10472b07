package amd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/gate"
)

var _ interface {
	hardware.Driver
	hardware.PartitionModes
	hardware.Obstructed
} = (*Driver)(nil)

// busyPatience is how long a switch waits for processes that hold the GPU, when
// Config does not say.
const busyPatience = 10 * time.Second

// Config says where the driver is.
type Config struct {
	// Files is the host's, or a simulated kernel.
	Files Files
	// HostDevRoot is the folder that has dev/kfd in it, by the name that the
	// container runtime sees: "/", which is also the default, or the folder of a
	// simulated kernel.
	HostDevRoot string
	// BusyPatience is how long a switch waits for processes that hold the GPU.
	// Zero: 10 s.
	BusyPatience time.Duration
	// Reload takes amdgpu out of the kernel and puts it in again, which
	// SetMemoryPartition needs; pkg/hardware/kmod has what does it. It ends with a driver
	// that is loaded, whenever ctx ends, or its error says that none is. One that is
	// in use is left alone, with gpu.ErrInUse. Nil: memory modes cannot be changed.
	Reload func(ctx context.Context) error
	// ReloadPatience is how long the GPUs may take until they can be used after a
	// load of the driver, which resets them. Zero: 3 min.
	ReloadPatience time.Duration
	// Logger hears of what is odd but no failure. The zero value is silent.
	Logger klog.Logger
}

// Driver is the machine's AMD Instinct GPUs. It implements hardware.Driver.
//
// It outlives loads of amdgpu, its own as by SetMemoryPartition and those of others: what
// it knows belongs to one load, and is learnt anew under the next. While there is no
// driver, calls fail with fs.ErrNotExist, and GPUs that were known are reported as
// gone.
type Driver struct {
	cfg Config
	// host is the gate of what belongs to no GPU; module that of the files that
	// tell which load of the driver this is.
	host, module *gate.Gate

	// mu protects what follows.
	mu    sync.Mutex
	gates map[string]*gate.Gate
	// topology is the last that was read.
	topology *topology
	// known are the GPUs by address, as Inventory last told them.
	known map[string]gpu.GPU
	// shapes is what was learnt about the GPUs under a load of the driver.
	shapes map[string]*shape
	// configs is what the driver says about the modes of a kind of GPU, and
	// reading is closed when it has been read of one of them.
	configs map[string]configs
	reading map[string]chan struct{}
	// places are the partition devices by their render nodes, where they were last
	// found.
	places map[int]string
	// hostBusy is the load of a driver of which we have seen that it switches no
	// GPU while any process of the host uses KFD; empty when there is none.
	hostBusy string
}

// New makes a driver. It touches nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.Files == nil {
		return nil, errors.New("amd: Config.Files is not set")
	}
	if cfg.HostDevRoot == "" {
		cfg.HostDevRoot = "/"
	}
	if cfg.BusyPatience <= 0 {
		cfg.BusyPatience = busyPatience
	}
	if cfg.ReloadPatience <= 0 {
		cfg.ReloadPatience = reloadPatience
	}
	return &Driver{
		cfg:    cfg,
		host:   gate.New("amdgpu", ""),
		module: gate.New("amdgpu's module", ""),
		gates:  map[string]*gate.Gate{},
		known:  map[string]gpu.GPU{},
		shapes: map[string]*shape{},

		configs: map[string]configs{},
		places:  map[int]string{},
		reading: map[string]chan struct{}{},
	}, nil
}

// Open looks whether there is amdgpu on this machine; fs.ErrNotExist says that
// there is none. It holds nothing open.
func (d *Driver) Open(ctx context.Context) error {
	if _, err := d.addresses(ctx); err != nil {
		return fmt.Errorf("look for AMD GPUs: %w", err)
	}
	return nil
}

// Close does nothing, since nothing is held open. It does not wait for calls
// that hang.
func (d *Driver) Close(context.Context) error { return nil }

// gateOf is the gate of one GPU.
func (d *Driver) gateOf(pciAddress string) *gate.Gate {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, ok := d.gates[pciAddress]
	if !ok {
		g = gate.New("GPU "+pciAddress, "")
		d.gates[pciAddress] = g
	}
	return g
}
