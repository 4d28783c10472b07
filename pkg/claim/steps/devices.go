package steps

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Allocated returns the devices of this driver that are allocated to the claim, with the
// placement that each device name stands for.
func Allocated(claim *resourceapi.ResourceClaim, node string, gpus []gpu.GPU) ([]ledger.Device, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	limits, err := claimconfig.Read(claim.Status.Allocation.Devices.Config)
	if err != nil {
		return nil, err
	}
	var devices []ledger.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != names.DriverName {
			continue
		}
		placement, err := findPlacement(node, gpus, result.Pool, result.Device)
		if err != nil {
			return nil, err
		}
		admin := ptr.Deref(result.AdminAccess, false)
		switch {
		case admin && placement.Type != gpu.TypeMonitor:
			return nil, fmt.Errorf("device %s was allocated with adminAccess, which is for DeviceClass gpu-monitor.tranche.dev only: use that class in the claim", result.Device)
		case !admin && placement.Type == gpu.TypeMonitor:
			return nil, fmt.Errorf("device %s is for monitors: set adminAccess: true in the claim, in a namespace with the label %s=true", result.Device, resourceapi.DRAAdminNamespaceLabelKey)
		}
		device := ledger.Device{
			Request:   result.Request,
			Pool:      result.Pool,
			Name:      result.Device,
			Admin:     admin,
			Placement: placement,
			Made:      placement.Base().Type == gpu.TypeMIG,
			ShareID:   ShareID(result),
		}
		if placement.Share != nil {
			if device.Amount, err = amountOf(placement, &result); err != nil {
				return nil, err
			}
			device.MemoryLimit = limitOf(placement, device.Amount, limits.Of(result.Request))
		}
		devices = append(devices, device)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("no device of driver %s is allocated to the claim", names.DriverName)
	}
	return devices, nil
}

// GPUs returns the PCI addresses of the GPUs whose devices are allocated to the claim, by the names
// of the devices alone.
func GPUs(claim *resourceapi.ResourceClaim, node string) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var gpus []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if address := gpu.AddressOf(result.Device); address != "" && result.Driver == names.DriverName && result.Pool == names.PoolName(node) {
			gpus = append(gpus, address)
		}
	}
	return gpus
}

// ShareID returns the ID of a share; empty for a device that is not a share.
func ShareID(result resourceapi.DeviceRequestAllocationResult) types.UID {
	if result.ShareID == nil {
		return ""
	}
	return *result.ShareID
}

// limitOf returns the memory limit of a share whose claim asks for one, in bytes; zero: its amount. It is at
// most what the node's profile allows and what there is to share.
func limitOf(p gpu.Placement, amount *gpu.Amount, asked int64) int64 {
	limit := min(asked, amount.Memory*int64(p.Share.MaxMemoryLimitPercent)/gpu.LimitIsRequest, p.Memory) / gpu.MiB * gpu.MiB
	if limit <= amount.Memory {
		return 0
	}
	return limit
}

// ReducedLimits says which shares of a claim have another memory limit than it asks for, and why. A share
// whose memory nothing limits has all that it finds.
func ReducedLimits(claim *resourceapi.ResourceClaim, r ledger.Record) (all []string) {
	if claim.Status.Allocation == nil {
		return nil
	}
	asked, err := claimconfig.Read(claim.Status.Allocation.Devices.Config)
	if err != nil {
		return nil // it was refused
	}
	for _, d := range r.Devices {
		want := asked.Of(d.Request)
		if !d.IsShare() || want == 0 || want == d.MemoryMost() || d.Placement.Isolation == gpu.IsolationNone {
			continue
		}
		why := fmt.Sprintf("the profile of the node allows %d %% of the request (sharing.maxMemoryLimitPercent, which an administrator can raise)", max(gpu.LimitIsRequest, d.Placement.Share.MaxMemoryLimitPercent))
		switch {
		case want < d.Amount.Memory:
			why = "a limit is at least the request: raise it, or request less"
		case d.MemoryMost() >= d.Placement.Memory:
			why = "that is all of the GPU"
		}
		all = append(all, fmt.Sprintf("The memory limit of request %s of claim %s is %d MiB, not the %d MiB of its configuration: %s",
			d.Request, r.Claim, d.MemoryMost()/gpu.MiB, want/gpu.MiB, why))
	}
	return all
}

func findPlacement(node string, gpus []gpu.GPU, pool, device string) (gpu.Placement, error) {
	name := gpu.OfDevice(device)
	for i := range gpus {
		g := &gpus[i]
		if pool != names.PoolName(node) || g.Name() != name {
			continue
		}
		if p, ok := g.Placement(device); ok {
			return p, nil
		}
		if p := gpu.Monitor(g.PCIAddress); p.Name() == device {
			return p, nil
		}
		return gpu.Placement{}, fmt.Errorf("device %s does not exist on GPU %s: the GPU's mode or driver has changed since the device was allocated; delete the pod so that it is scheduled again", device, g.Name())
	}
	return gpu.Placement{}, fmt.Errorf("device %s of pool %s: node %s does not have the GPU of this device, or its driver is not loaded; this is retried, or delete the pod so that it is scheduled again", device, pool, node)
}
