package steps

import (
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Allocated returns the devices of this driver that are allocated to the claim, with the
// placement that each device name stands for.
func Allocated(claim *resourceapi.ResourceClaim, node string, gpus []gpu.GPU) ([]ledger.Device, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	if err := refuseConfig(claim.Status.Allocation.Devices.Config); err != nil {
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

// refuseConfig refuses opaque parameters for this driver, which has none: settings of a GPU are
// properties of the published device, so that two claims cannot disagree about them.
func refuseConfig(configs []resourceapi.DeviceAllocationConfiguration) error {
	for _, config := range configs {
		if config.Opaque == nil || config.Opaque.Driver != names.DriverName {
			continue
		}
		var kind metav1.TypeMeta
		if err := json.Unmarshal(config.Opaque.Parameters.Raw, &kind); err != nil || kind.Kind == "" {
			kind.Kind = "without a kind"
		}
		return fmt.Errorf("driver %s takes no opaque configuration, but the %s has one of kind %q: remove spec.devices.config from it",
			names.DriverName, configSource(config.Source), text.Cut(strings.TrimPrefix(kind.APIVersion+"/"+kind.Kind, "/"), longestKind))
	}
	return nil
}

// longestKind limits the quoted kind, in bytes: parameters can have 10 KiB.
const longestKind = 103

func configSource(source resourceapi.AllocationConfigSource) string {
	if source == resourceapi.AllocationConfigSourceClass {
		return "device class"
	}
	return "claim"
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
