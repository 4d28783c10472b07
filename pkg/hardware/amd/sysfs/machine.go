package sysfs

import (
	"context"
	"errors"
	"path"
	"strconv"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Machine has the GPUs that amdgpu drives. What it has learnt about them belongs to one
// load of the driver, and is read again under the next.
type Machine struct {
	files  Files
	logger klog.Logger
	// host is the gate of what belongs to no GPU; module that of the files that
	// tell which load of the driver this is.
	host, module *hardware.Gate

	// mu protects what follows.
	mu    sync.Mutex
	gates map[string]*hardware.Gate
	// topology is the last that was read.
	topology *Topology
	// known are the GPUs by address, as Inventory last reported them.
	known      map[string]gpu.GPU
	capacities map[string]*capacity
}

// New reads from these files. It touches nothing.
func New(files Files, logger klog.Logger) *Machine {
	return &Machine{
		files: files, logger: logger,
		host:       hardware.NewGate("amdgpu", ""),
		module:     hardware.NewGate("amdgpu's module", ""),
		gates:      map[string]*hardware.Gate{},
		known:      map[string]gpu.GPU{},
		capacities: map[string]*capacity{},
	}
}

// GPU is one GPU during one task.
type GPU struct {
	*Task
	machine    *Machine
	PCIAddress string
}

// File returns the path of a file of the GPU in sysfs.
func (c *GPU) File(name string) string { return path.Join(DevicesDir, c.PCIAddress, name) }

// OnGPU runs f for one GPU, alone, if the GPU is there.
func OnGPU[T any](ctx context.Context, m *Machine, pciAddress string, f func(*GPU) (T, error)) (T, error) {
	var none T
	// The address becomes part of paths.
	if address, err := gpu.NormalizePCIAddress(pciAddress); err != nil || address != pciAddress {
		return none, errors.Join(errors.New("GPU "+strconv.Quote(pciAddress)+": no PCI address in sysfs' spelling"), err)
	}
	return through(ctx, m, m.GateOf(pciAddress), func(t *Task) (T, error) {
		c := &GPU{Task: t, machine: m, PCIAddress: pciAddress}
		if _, err := c.Stat(c.File("")); Absent(err) {
			return none, c.Gone(err)
		} else if err != nil {
			return none, err
		}
		return f(c)
	})
}

// Hold keeps everybody else from what belongs to no GPU: their calls fail with why until
// reopen is called.
func (m *Machine) Hold(ctx context.Context, why string) (held *Task, reopen func(), err error) {
	return m.hold(ctx, m.host, why)
}

// HoldGPU is Hold for a GPU.
func (m *Machine) HoldGPU(ctx context.Context, pciAddress, why string) (held *GPU, reopen func(), err error) {
	t, reopen, err := m.hold(ctx, m.GateOf(pciAddress), why)
	return &GPU{Task: t, machine: m, PCIAddress: pciAddress}, reopen, err
}

func (m *Machine) hold(ctx context.Context, g *hardware.Gate, why string) (*Task, func(), error) {
	held, reopen, err := g.Close(ctx, why)
	return &Task{held, m.files}, reopen, err
}

// GateOf is the gate of one GPU.
func (m *Machine) GateOf(pciAddress string) *hardware.Gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gates[pciAddress] == nil {
		m.gates[pciAddress] = hardware.NewGate("GPU "+pciAddress, "")
	}
	return m.gates[pciAddress]
}

// learn changes what is known of the GPU.
func (c *GPU) learn(f func()) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	f()
}

// recentTopology is the last topology, read again if KFD says that it changed.
func (m *Machine) recentTopology(t *Task) (*Topology, error) {
	generation, err := Generation(t)
	if err != nil && !Absent(err) {
		return nil, err
	}
	m.mu.Lock()
	last := m.topology
	m.mu.Unlock()
	if last != nil && last.Generation == generation {
		return last, nil
	}
	return m.readTopology(t)
}

// readTopology reads the topology and keeps it for recentTopology.
func (m *Machine) readTopology(t *Task) (*Topology, error) {
	fresh, err := ReadTopology(t)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topology = fresh
	return fresh, nil
}
