package drivers

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// settable finds the vendor of a GPU; nil if there is nothing to set on it.
func (h *Set) settable(pciAddress string) (hardware.TimeSlicer, error) {
	o, err := h.of(pciAddress)
	if err != nil {
		return nil, err
	}
	s, _ := o.Driver.(hardware.TimeSlicer)
	return s, nil
}

// SetTimeSlice sets how long a turn on a GPU is. On GPUs that take no such
// setting it does nothing.
func (h *Set) SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return err
	}
	return s.SetTimeSlice(ctx, pciAddress, slice)
}

// Settings reads how a GPU is set, as far as sharing changes that.
func (h *Set) Settings(ctx context.Context, pciAddress string) (gpu.Settings, error) {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return gpu.Settings{}, err
	}
	return s.Settings(ctx, pciAddress)
}

// SetComputeMode says who may start programs on a GPU, where it can be said.
func (h *Set) SetComputeMode(ctx context.Context, pciAddress, mode string) error {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return err
	}
	return s.SetComputeMode(ctx, pciAddress, mode)
}

// LoadWithMPS is the vendor whose driver has MPS, with the load of that driver; both are
// empty where there is none that can be used.
func (h *Set) LoadWithMPS() (vendor gpu.Vendor, load string) {
	for _, o := range h.All() {
		if o.ProgramRoot != "" {
			return o.Name, o.Load()
		}
	}
	return "", ""
}
