package drivers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Missing has the drivers that the node should have and cannot use. Without one of them, the
// plugin serves the kubelet, but is not ready, so that a rolling update does not replace an
// older plugin that works.
type Missing struct {
	// mu protects the fields below.
	mu sync.Mutex
	// failed is why drivers that are expected cannot be used.
	failed map[gpu.Vendor]error
	// unlisted is why drivers that are open do not list their GPUs.
	unlisted map[gpu.Vendor]error
}

// Set sets which expected drivers cannot be used, and why.
func (d *Missing) Set(failed map[gpu.Vendor]error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = failed
}

// SetUnlisted sets which open drivers do not list their GPUs, and why. It returns those that did
// before.
func (d *Missing) SetUnlisted(failed map[gpu.Vendor]error) (added []gpu.Vendor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for vendor := range failed {
		if d.unlisted[vendor] == nil {
			added = append(added, vendor)
		}
	}
	d.unlisted = failed
	return added
}

// Problem says which expected drivers cannot be used; nil if all can.
func (d *Missing) Problem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	for _, v := range slices.Sorted(maps.Keys(d.failed)) {
		problems = append(problems, fmt.Errorf("the %s driver of this node cannot be used: %w", v.Title(), d.failed[v]))
	}
	for _, v := range slices.Sorted(maps.Keys(d.unlisted)) {
		problems = append(problems, fmt.Errorf("the %s GPUs of this node cannot be listed: %w", v.Title(), d.unlisted[v]))
	}
	return errors.Join(problems...)
}

// UpgradeError says that a driver is not used because it is being replaced.
type UpgradeError struct{ Signal string }

// Error implements error.
func (e *UpgradeError) Error() string {
	return "it was released for a driver upgrade, which " + e.Signal + " requests"
}
