package fit

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
)

// searchTimeout limits the allocator's search on one node. If many devices do not fit, it tries every
// combination.
const searchTimeout = 2 * time.Second

// errTimeout is the error of fits when the search takes too long.
var errTimeout = errors.New("whether it fits could not be determined in " + searchTimeout.String() +
	": for many devices in one claim, the scheduler also tries every combination. Use one device per claim")

// fits reports whether the claims would all fit on a node now, according to the scheduler's allocator.
func (m *Model) fits(ctx context.Context, node *corev1.Node, claims ...*resourceapi.ResourceClaim) (bool, error) {
	devices, err := m.allocate(ctx, m.held, m.slices, node, claims)
	return devices != nil, err
}

// everFits reports whether they would fit if no device were held or tainted.
func (m *Model) everFits(ctx context.Context, node *corev1.Node, claims ...*resourceapi.ResourceClaim) (bool, error) {
	if m.bare == nil {
		for _, s := range m.slices {
			s = s.DeepCopy()
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Taints = nil
			}
			m.bare = append(m.bare, s)
		}
	}
	devices, err := m.allocate(ctx, allocation.Nothing(), m.bare, node, claims)
	return devices != nil, err
}

// allocate returns the devices that claims get, nil if they do not fit.
func (m *Model) allocate(ctx context.Context, held structured.AllocatedState, published []*resourceapi.ResourceSlice,
	node *corev1.Node, claims []*resourceapi.ResourceClaim) (devices []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, allocation.Features, held, m.DeviceClasses, published, m.Selectors)
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator failed: %w", err)
	}
	results, err := allocator.Allocate(ctx, node, claims)
	switch {
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errTimeout
	case err != nil:
		return nil, fmt.Errorf("the scheduler's allocator failed: %w", err)
	}
	if len(results) > 0 {
		devices = []string{} // claims without requests fit
	}
	for _, r := range results {
		for _, device := range r.Devices.Results {
			devices = append(devices, device.Device)
		}
	}
	return devices, nil
}

// alone returns a copy of a claim with only one of its requests, without constraints.
func alone(claim *resourceapi.ResourceClaim, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	out := claim.DeepCopy()
	out.Spec.Devices = resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}
	return out
}

// unconstrained returns a copy of a claim without constraints.
func unconstrained(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	out := claim.DeepCopy()
	out.Spec.Devices.Constraints = nil
	return out
}
