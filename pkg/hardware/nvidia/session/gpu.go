package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// GPU is one GPU during one task.
type GPU struct {
	*Task
	PCIAddress string
	Device     nvml.Device
	// known are the GPU's profiles, once read.
	known []mig.Profile
}

// OnGPU runs f for one GPU, alone. The handle is looked up each time: that costs little,
// and no handle outlives a reload of the driver.
func OnGPU[T any](ctx context.Context, s *Session, pciAddress string, f func(*GPU) (T, error)) (T, error) {
	return Through(ctx, s, s.gateOf(pciAddress), func(t *Task) (T, error) {
		device, err := s.lookup(t, pciAddress)
		if err != nil {
			var none T
			return none, err
		}
		g := &GPU{Task: t, PCIAddress: pciAddress, Device: device}
		value, err := f(g)
		return value, g.confirmLoss(err)
	})
}

func (s *Session) gateOf(pciAddress string) *hardware.Gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.gates[pciAddress]
	if !ok {
		g = NewGate("GPU " + pciAddress)
		s.gates[pciAddress] = g
	}
	return g
}

// Undoing returns the GPU for what must be done although the caller has given up. See
// Task.Undoing.
func (g *GPU) Undoing() *GPU {
	u := *g
	u.Task = g.Task.Undoing()
	return &u
}

// confirmLoss adds gpu.ErrLost to an unknown error of a GPU that is lost. Several calls,
// those for GPU instances among them, document ERROR_UNKNOWN but not ERROR_GPU_IS_LOST
// (nvml.h). DeviceGetMemoryInfo documents both and asks the GPU.
func (g *GPU) confirmLoss(err error) error {
	if !errors.Is(err, nvml.ERROR_UNKNOWN) {
		return err
	}
	if _, asked := g.TotalMemory(); Lost(asked) {
		return fmt.Errorf("%w: %w", err, asked)
	}
	return err
}

// lookup finds a GPU's handle. It opens NVML again if the session was lost. A GPU that
// the driver does not list any more was removed from the bus, and counts as lost.
func (s *Session) lookup(t *Task, pciAddress string) (nvml.Device, error) {
	device, err := reopening(t, s, "DeviceGetHandleByPciBusId", func() (nvml.Device, nvml.Return) {
		return t.NVML.DeviceGetHandleByPciBusId(pciAddress)
	})
	if errors.Is(err, nvml.ERROR_NOT_FOUND) {
		return nil, fmt.Errorf("%w: %w: the driver does not list it", err, gpu.ErrLost)
	}
	return device, err
}

// reopening is Ask, once more with NVML opened again if the session was lost.
func reopening[T any](t *Task, s *Session, call string, f func() (T, nvml.Return)) (T, error) {
	value, err := Ask(t, call, f)
	if !errors.Is(err, nvml.ERROR_UNINITIALIZED) {
		return value, err
	}
	if err := s.begin(t); err != nil {
		return value, err
	}
	return Ask(t, call, f)
}

// Count returns the number of GPUs. It opens NVML again if the session was lost.
func (s *Session) Count(ctx context.Context) (int, error) {
	return OnLibrary(ctx, s, func(t *Task) (int, error) { return reopening(t, s, "DeviceGetCount", t.NVML.DeviceGetCount) })
}

// Address returns the PCI address of the GPU with an NVML index. Each index has a gate
// of its own: a GPU that hangs here must not hold up the others.
func (s *Session) Address(ctx context.Context, index int) (string, error) {
	address, err := Through(ctx, s, s.gateOf("with "+IndexName(index)), func(t *Task) (string, error) {
		device, err := Ask(t, "DeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) {
			return t.NVML.DeviceGetHandleByIndex(index)
		})
		if err != nil {
			return "", err
		}
		info, err := Ask(t, "DeviceGetPciInfo", device.GetPciInfo)
		if err != nil {
			return "", err
		}
		return AddressIn(info)
	})
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[index] = address
	return address, nil
}

// IndexName names a GPU of which nothing but its NVML index is known.
func IndexName(index int) string { return fmt.Sprintf("NVML index %d", index) }

// AddressIn returns the PCI address in an answer of NVML.
func AddressIn(info nvml.PciInfo) (string, error) {
	return gpu.NormalizePCIAddress(String(info.BusId[:]))
}

// AddressSeen returns the address that the GPU with an index had when it last answered,
// empty if it never did.
func (s *Session) AddressSeen(index int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[index]
}

// UUID reads the GPU's UUID.
func (g *GPU) UUID() (string, error) { return Ask(g.Task, "DeviceGetUUID", g.Device.GetUUID) }

// Minor reads the number of the GPU's device node. Read it at each use: nothing promises
// that it stays when MIG mode changes.
func (g *GPU) Minor() (int, error) {
	return Ask(g.Task, "DeviceGetMinorNumber", g.Device.GetMinorNumber)
}

// TotalMemory reads the GPU's memory in bytes, including what the driver reserves. It is zero
// for a GPU that shares the memory of the host and reports none (nvml.h, nvmlDeviceGetMemoryInfo:
// "certain SOC platforms", such as GB10 and Thor).
func (g *GPU) TotalMemory() (uint64, error) {
	memory, err := Ask(g.Task, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return g.Device.GetMemoryInfo() })
	if Unsupported(err) {
		return 0, nil
	}
	return memory.Total, err
}

// ComputeCapability reads the GPU's CUDA compute capability.
func (g *GPU) ComputeCapability() (major, minor int, err error) {
	version, err := Ask(g.Task, "DeviceGetCudaComputeCapability", func() ([2]int, nvml.Return) {
		major, minor, ret := g.Device.GetCudaComputeCapability()
		return [2]int{major, minor}, ret
	})
	return version[0], version[1], err
}

// FieldValue reads an unsigned field of the GPU. known is false for drivers and GPUs that
// do not have it.
func (g *GPU) FieldValue(field uint32) (value uint64, known bool, err error) {
	values := []nvml.FieldValue{{FieldId: field}}
	err = Tell(g.Task, "DeviceGetFieldValues", func() nvml.Return { return g.Device.GetFieldValues(values) })
	// The call succeeds "if any values were populated" (nvml.h): not if it knows none of them.
	if Unsupported(err) || errors.Is(err, nvml.ERROR_INVALID_ARGUMENT) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	answer := values[0]
	if ret := nvml.Return(answer.NvmlReturn); ret != nvml.SUCCESS {
		// Drivers that do not know a field use several codes for that. A lost GPU has
		// one.
		if ret == nvml.ERROR_GPU_IS_LOST {
			return 0, false, &CallError{Subject: g.Subject(), Call: "DeviceGetFieldValues", Return: ret}
		}
		return 0, false, nil
	}
	switch nvml.ValueType(answer.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG:
		return binary.NativeEndian.Uint64(answer.Value[:]), true, nil
	}
	return uint64(binary.NativeEndian.Uint32(answer.Value[:])), true, nil
}

// String reads a zero-terminated string from a C array.
func String(raw []int8) string {
	var text []byte
	for _, c := range raw {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}
