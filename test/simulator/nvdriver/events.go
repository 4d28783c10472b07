package nvdriver

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// XID is an error of a GPU that the driver reports as an event.
type XID struct {
	// GPU is a PCI address.
	GPU string `json:"gpu"`
	// GPUInstance is the id of the GPU instance it belongs to, absent for the
	// whole GPU.
	GPUInstance *int `json:"gpuInstance,omitempty"`
	// ComputeInstance is the id of the compute instance in it that the error is attributable to, if
	// it is to one.
	ComputeInstance *int `json:"computeInstance,omitempty"`
	// XID is the error's number, like 79 (fallen off the bus).
	XID uint64 `json:"xid"`
}

func (x XID) check() error {
	switch {
	case !models.IsPCIAddress(x.GPU):
		return fmt.Errorf("gpu: %q is not an address like 0000:1b:00.0", x.GPU)
	case x.GPUInstance != nil && *x.GPUInstance < 0:
		return fmt.Errorf("gpuInstance: %d is negative", *x.GPUInstance)
	case x.ComputeInstance != nil && x.GPUInstance == nil:
		return fmt.Errorf("computeInstance: %d needs its gpuInstance", *x.ComputeInstance)
	case x.ComputeInstance != nil && *x.ComputeInstance < 0:
		return fmt.Errorf("computeInstance: %d is negative", *x.ComputeInstance)
	case x.XID == 0:
		return fmt.Errorf("xid: 0 is no error")
	}
	return nil
}

func (x XID) equal(y XID) bool {
	return x.GPU == y.GPU && x.XID == y.XID && idOf(x.GPUInstance) == idOf(y.GPUInstance) && idOf(x.ComputeInstance) == idOf(y.ComputeInstance)
}

// idOf is NVML's number of an instance, or for none.
func idOf(instance *int) uint32 {
	if instance == nil {
		return noInstance
	}
	return uint32(*instance)
}

// eventSet delivers the XIDs of the GPUs registered with it.
type eventSet struct {
	nvml.EventSet

	nv *NVML

	mu      sync.Mutex
	freed   bool
	devices []*device
	id      disk.FileID
	seen    []XID // of the faults file last looked at
	pending []XID
}

// EventSetCreate makes an empty set.
func (n *NVML) EventSetCreate() (nvml.EventSet, nvml.Return) {
	if ret := n.initialized(); ret != nvml.SUCCESS {
		return nil, ret
	}
	if ret := n.inject("EventSetCreate", "*"); ret != nvml.SUCCESS {
		return nil, ret
	}
	s := &eventSet{EventSet: missingEvents, nv: n}
	faults, id := n.faults.Read()
	s.id, s.seen = id, faults.XIDs
	return s, nvml.SUCCESS
}

// eventTypes are what an H100 supports with R580. Only XIDs are simulated.
const eventTypes = 0xff9f

// GetSupportedEventTypes names what can be registered.
func (d *device) GetSupportedEventTypes() (uint64, nvml.Return) {
	return eventTypes, d.check("GetSupportedEventTypes")
}

// RegisterEvents adds the GPU's XIDs to a set: "all events that occurred
// before this call are not recorded" (nvml.h).
func (d *device) RegisterEvents(types uint64, set nvml.EventSet) nvml.Return {
	if ret := d.check("RegisterEvents"); ret != nvml.SUCCESS {
		return ret
	}
	s, ok := set.(*eventSet)
	if !ok || s.nv != d.nv {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	if types&^eventTypes != 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if types&nvml.EventTypeXidCriticalError != 0 && !slices.Contains(s.devices, d) {
		s.devices = append(s.devices, d)
	}
	return nvml.SUCCESS
}

// eventPoll is how often a waiting set looks at the faults, in real time.
const eventPoll = 100 * time.Millisecond

// Wait returns the next event, TIMEOUT when there is none for so many
// milliseconds, or GPU_IS_LOST while a registered GPU is off the bus: a
// caller that asks again at once is answered so again.
func (s *eventSet) Wait(milliseconds uint32) (nvml.EventData, nvml.Return) {
	if ret := s.nv.inject("EventSetWait", "*"); ret != nvml.SUCCESS {
		return nvml.EventData{}, ret
	}
	deadline := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	for {
		if data, ret := s.next(); ret != nvml.ERROR_TIMEOUT {
			return data, ret
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
		time.Sleep(min(left, eventPoll))
	}
}

func (s *eventSet) next() (nvml.EventData, nvml.Return) {
	if ret := s.nv.initialized(); ret != nvml.SUCCESS {
		return nvml.EventData{}, ret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return nvml.EventData{}, nvml.ERROR_INVALID_ARGUMENT
	}
	s.look()
	for len(s.pending) > 0 {
		x := s.pending[0]
		s.pending = s.pending[1:]
		i := slices.IndexFunc(s.devices, func(d *device) bool { return d.gpu().PCI == x.GPU })
		if i >= 0 {
			return x.data(s.devices[i]), nvml.SUCCESS
		}
	}
	for _, d := range s.devices {
		if ret := d.reachable(); ret != nvml.SUCCESS {
			return nvml.EventData{}, ret
		}
	}
	return nvml.EventData{}, nvml.ERROR_TIMEOUT
}

// look takes up the XIDs that have appeared in the faults since the last look.
func (s *eventSet) look() {
	faults, id := s.nv.faults.Read()
	if id == s.id {
		return
	}
	known := slices.Clone(s.seen)
	for _, x := range faults.XIDs {
		if i := slices.IndexFunc(known, x.equal); i >= 0 {
			known = slices.Delete(known, i, i+1)
			continue
		}
		s.pending = append(s.pending, x)
	}
	s.id, s.seen = id, faults.XIDs
}

func (x XID) data(d *device) nvml.EventData {
	return nvml.EventData{
		Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: x.XID,
		GpuInstanceId: idOf(x.GPUInstance), ComputeInstanceId: idOf(x.ComputeInstance),
	}
}

// Free ends the set.
func (s *eventSet) Free() nvml.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = true
	return nvml.SUCCESS
}
