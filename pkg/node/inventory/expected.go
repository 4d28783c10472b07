package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// A driver is expected if the node should have a usable one. Without it, the plugin serves the
// kubelet, but is not ready, so that a rolling update does not replace an older plugin that works.

// UpgradeError says that a driver is not used because it is being replaced.
type UpgradeError struct{ Signal string }

// Error implements error.
func (e *UpgradeError) Error() string {
	return "it was released for a driver upgrade, which " + e.Signal + " requests"
}

// IsUpgrading reports whether a vendor's driver was released for its upgrade.
func (h *Drivers) IsUpgrading(v gpu.Vendor) bool {
	_, ok := h.WhyNot(v).(*UpgradeError) //nolint:errorlint // it is never wrapped
	return ok
}

// expects reports whether the node should have a usable driver: it had GPUs of the vendor, or the
// driver's kernel module is loaded.
func (h *Drivers) expects(vendor gpu.Vendor, err error) bool {
	if !errors.Is(err, hardware.ErrNoDriver) && !errors.As(err, new(*UpgradeError)) {
		return true
	}
	if slices.ContainsFunc(h.cfg.Roster.All(), func(g gpu.GPU) bool { return g.Vendor == vendor }) {
		return true
	}
	o := h.Find(vendor)
	return o != nil && o.Load() != ""
}

// setFailed records which drivers cannot be used, and reports each reason once.
func (h *Drivers) setFailed(ctx context.Context, failed map[gpu.Vendor]error) {
	reported, expected := map[gpu.Vendor]string{}, map[gpu.Vendor]error{}
	for vendor, err := range failed {
		reported[vendor] = err.Error()
		isExpected := h.expects(vendor, err)
		if isExpected {
			expected[vendor] = err
		}
		upgrade := (*UpgradeError)(nil)
		switch {
		case h.reported[vendor] == reported[vendor]:
		case !isExpected:
			klog.FromContext(ctx).V(2).Info("No GPUs of this vendor; checking again at intervals", "vendor", vendor, "reason", reported[vendor])
		case errors.As(err, &upgrade): // reported when it was released
		default:
			h.cfg.Events.Warn(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the %s GPUs of this node, which is retried: %v. Pods that hold some can end; no other claims are prepared", vendor.Title(), err))
		}
	}
	h.reported = reported
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = expected
}

// SetUnlisted sets which open drivers do not list their GPUs, and why, and reports those that did
// before.
func (h *Drivers) SetUnlisted(ctx context.Context, failed map[gpu.Vendor]error) {
	h.mu.Lock()
	before := h.unlisted
	h.unlisted = failed
	h.mu.Unlock()
	for vendor, err := range failed {
		if before[vendor] == nil {
			h.cfg.Events.Warn(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot list the %s GPUs of this node, which is retried: %v", vendor.Title(), err))
		}
	}
}

// Problem says which expected drivers cannot be used; nil if all can.
func (h *Drivers) Problem() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var problems []error
	for _, v := range slices.Sorted(maps.Keys(h.failed)) {
		problems = append(problems, fmt.Errorf("the %s driver of this node cannot be used: %w", v.Title(), h.failed[v]))
	}
	for _, v := range slices.Sorted(maps.Keys(h.unlisted)) {
		problems = append(problems, fmt.Errorf("the %s GPUs of this node cannot be listed: %w", v.Title(), h.unlisted[v]))
	}
	return errors.Join(problems...)
}
