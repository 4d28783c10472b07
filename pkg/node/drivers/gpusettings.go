package drivers

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// settable returns the TimeSlicer of a GPU; nil if its driver is none.
func (h *Set) settable(pciAddress string) (hardware.TimeSlicer, error) {
	o, err := h.of(pciAddress)
	if err != nil {
		return nil, err
	}
	s, _ := o.Driver.(hardware.TimeSlicer)
	return s, nil
}

// SetTimeSlice sets the time slice of a GPU. It does nothing if the vendor has no such setting.
func (h *Set) SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return err
	}
	return s.SetTimeSlice(ctx, pciAddress, slice)
}

// Settings reads the settings of a GPU that sharing changes.
func (h *Set) Settings(ctx context.Context, pciAddress string) (gpu.Settings, error) {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return gpu.Settings{}, err
	}
	return s.Settings(ctx, pciAddress)
}

// SetComputeMode sets the CUDA compute mode. It does nothing if the vendor has no such setting.
func (h *Set) SetComputeMode(ctx context.Context, pciAddress, mode string) error {
	s, err := h.settable(pciAddress)
	if err != nil || s == nil {
		return err
	}
	return s.SetComputeMode(ctx, pciAddress, mode)
}

// LoadWithMPS returns the vendor whose driver has MPS, and the load of that driver; both are
// empty if there is no usable one.
func (h *Set) LoadWithMPS() (vendor gpu.Vendor, load string) {
	for _, o := range h.All() {
		if o.ProgramRoot != "" {
			return o.Name, o.Load()
		}
	}
	return "", ""
}
