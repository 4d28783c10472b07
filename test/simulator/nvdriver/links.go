package nvdriver

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GetNvLinkState says that the links of a GPU are up if they lead anywhere. Ampere turns them off in MIG mode,
// Hopper and later do not (NVIDIA's Fabric Manager User Guide, Interoperability With MIG).
func (d *device) GetNvLinkState(link int) (nvml.EnableState, nvml.Return) {
	g, ret := d.view("GetNvLinkState")
	if ret != nvml.SUCCESS {
		return 0, d.lostAsUnknown(ret)
	}
	if ret := d.checkLink(link); ret != nvml.SUCCESS {
		return 0, ret
	}
	model := d.gpu().Model
	faults, _ := d.nv.faults.Read()
	off := g.MIGMode && model.KeepsMIGMode() || slices.Contains(faults.LinksDown, d.gpu().PCI)
	if off || !model.NVSwitch && len(d.nv.inventory.Bridged(d.index)) == 0 {
		return nvml.FEATURE_DISABLED, nvml.SUCCESS
	}
	return nvml.FEATURE_ENABLED, nvml.SUCCESS
}

// checkLink answers what a number that is no link gets.
func (d *device) checkLink(link int) nvml.Return {
	switch n := d.gpu().Model.NVLinks; {
	case n == 0:
		return nvml.ERROR_NOT_SUPPORTED
	case link < 0 || link >= n:
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return nvml.SUCCESS
}

// GetNvLinkRemoteDeviceType says whether a link leads to an NVSwitch or, over a bridge, to a GPU.
func (d *device) GetNvLinkRemoteDeviceType(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	if ret := d.check("GetNvLinkRemoteDeviceType"); ret != nvml.SUCCESS {
		return 0, ret
	}
	if ret := d.checkLink(link); ret != nvml.SUCCESS {
		return 0, ret
	}
	switch {
	case d.gpu().Model.NVSwitch:
		return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
	case len(d.nv.inventory.Bridged(d.index)) > 0:
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
	return nvml.NVLINK_DEVICE_TYPE_UNKNOWN, nvml.SUCCESS
}

// GetNvLinkRemotePciInfo returns the GPU at the other end of a link. All links of a GPU lead to the others of
// its bridge in turn. The address of an NVSwitch is zero here.
func (d *device) GetNvLinkRemotePciInfo(link int) (nvml.PciInfo, nvml.Return) {
	ret := d.lostAsUnknown(d.check("GetNvLinkRemotePciInfo"))
	if ret == nvml.SUCCESS {
		ret = d.checkLink(link)
	}
	others := d.nv.inventory.Bridged(d.index)
	if ret != nvml.SUCCESS || len(others) == 0 {
		return nvml.PciInfo{}, ret
	}
	return d.nv.devices[others[link%len(others)]].pciInfo(), nvml.SUCCESS
}

// GetGpuFabricInfo says that a GPU has registered with the Fabric Manager, if it has NVSwitches. It is "for
// Hopper or newer" (nvml.h). The fabric of one node has no UUID.
func (d *device) GetGpuFabricInfo() (nvml.GpuFabricInfo, nvml.Return) {
	if ret := d.check("GetGpuFabricInfo"); ret != nvml.SUCCESS {
		return nvml.GpuFabricInfo{}, ret
	}
	if major, _ := d.gpu().Model.ComputeCapability(); major < 9 {
		return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	faults, _ := d.nv.faults.Read()
	switch {
	case !d.gpu().Model.NVSwitch:
		return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_NOT_SUPPORTED}, nvml.SUCCESS
	case slices.Contains(faults.Unregistered, d.gpu().PCI):
		return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_IN_PROGRESS}, nvml.SUCCESS
	}
	return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED}, nvml.SUCCESS
}
