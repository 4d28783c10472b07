package kubelet

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// healthInterval is how often the health of all devices is sent. It expires in the kubelet
// after 30 s.
const healthInterval = 10 * time.Second

// WatchHealthStatus implements kubeletplugin.DRAPlugin. A change of an MPS daemon is reported
// at once.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		changed := d.Daemons.WhenChanged()
		select {
		case reports <- d.health():
		case <-ctx.Done():
			return nil
		}
		select {
		case <-tick.C:
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// DaemonDied is the health message of a device whose MPS daemon has died. Users of other
// namespaces who have a share of the device see it, so it does not name the daemon, whose name
// is the UID of a claim.
const DaemonDied = "an MPS daemon that serves shares of this device has died and is restarted; the pods that it serves have an event"

// health reports the health of the devices that claims hold. The kubelet knows no health of
// shares, so that of a device is the worst of its shares.
func (d *Driver) health() kubeletplugin.DeviceHealthReport {
	known := map[string]inventory.GPU{}
	for _, g := range d.GPUs.List() {
		known[g.PCIAddress] = g
	}
	var report kubeletplugin.DeviceHealthReport
	now := time.Now()
	places := map[string]int{}
	for _, r := range ledger.InUse(d.Claims.Ledger.List()) {
		for _, device := range r.Devices {
			health := kubeletplugin.DeviceHealth{PoolName: device.Pool, DeviceName: device.Name, LastUpdated: now}
			if g, ok := known[device.Placement.GPU]; ok {
				health.Health, health.Message = d.healthOf(&g, r.Claim, &device)
			} else {
				health.Health, health.Message = kubeletplugin.HealthStatusUnknown, "GPU "+device.Placement.GPUName()+" has not been found since the plugin started"
			}
			if at, told := places[device.Name]; told {
				report.Devices[at] = worse(report.Devices[at], health)
				continue
			}
			places[device.Name] = len(report.Devices)
			report.Devices = append(report.Devices, health)
		}
	}
	return report
}

// worse combines two reports on one device.
func worse(a, b kubeletplugin.DeviceHealth) kubeletplugin.DeviceHealth {
	switch {
	case b.Health == kubeletplugin.HealthStatusHealthy, a.Message == b.Message:
		return a
	case a.Health == kubeletplugin.HealthStatusHealthy:
		return b
	}
	a.Message += "; " + b.Message
	return a
}

// healthOf returns the health of a device that a claim holds. Obstacles to a mode change do not
// matter, because the GPU already has the mode.
func (d *Driver) healthOf(g *inventory.GPU, claim ledger.ClaimRef, device *ledger.Device) (kubeletplugin.HealthStatus, string) {
	if g.Problem.Message != "" {
		return kubeletplugin.HealthStatusUnhealthy, "GPU " + g.Name() + ": " + g.Problem.Message
	}
	if gone, ok := g.Lacks()[device.Name]; ok {
		return kubeletplugin.HealthStatusUnhealthy, gone.Reason
	}
	for _, o := range d.Publisher.ObstaclesOn(g.PCIAddress) {
		if o.Placement == device.Placement.Base().Name() && o.Kind == gpu.ObstacleMissing {
			return kubeletplugin.HealthStatusUnhealthy, o.Reason
		}
	}
	if d.Daemons.Problem(claim, device) != "" {
		return kubeletplugin.HealthStatusUnhealthy, DaemonDied
	}
	return kubeletplugin.HealthStatusHealthy, ""
}
