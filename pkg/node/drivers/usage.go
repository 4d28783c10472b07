package drivers

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Usage measures a GPU. It fails with gpu.ErrNotSupported if its vendor cannot.
func (h *Set) Usage(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	o, err := h.of(pciAddress)
	if err != nil {
		return gpu.Usage{}, err
	}
	r, ok := o.Driver.(hardware.UsageReader)
	if !ok {
		return gpu.Usage{}, fmt.Errorf("measure GPU %s: %w", gpu.NameOf(pciAddress), gpu.ErrNotSupported)
	}
	return r.Usage(ctx, pciAddress)
}
