package nvidia

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// links reads the NVLinks of the GPU. Where that fails, those that were read last count.
func (h *handle) links(g *gpu.GPU) gpu.Links {
	l, err := h.readLinks(g)
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	if err != nil {
		h.Logger.Info("The NVLinks of a GPU cannot be read", "gpu", h.PCIAddress, "reason", err.Error())
		return h.driver.links[h.PCIAddress]
	}
	h.driver.links[h.PCIAddress] = l
	return l
}

// readLinks reads what is at the other ends of the GPU's links. It makes few calls of GPUs without NVLink or with
// NVSwitches, because an inventory is read often.
func (h *handle) readLinks(g *gpu.GPU) (l gpu.Links, err error) {
	for link := range nvml.NVLINK_MAX_LINKS {
		state, err := session.Ask(h.Task, "DeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return h.Device.GetNvLinkState(link) })
		if link == 0 && session.Unsupported(err) {
			return l, nil // a GPU without NVLink
		}
		if noLink(err) || err == nil && state != nvml.FEATURE_ENABLED {
			continue
		}
		if err != nil {
			return l, err
		}
		kind, err := session.Ask(h.Task, "DeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
			return h.Device.GetNvLinkRemoteDeviceType(link)
		})
		switch {
		case noLink(err) || err == nil && kind != nvml.NVLINK_DEVICE_TYPE_GPU && kind != nvml.NVLINK_DEVICE_TYPE_SWITCH:
			continue // the host (IBM's NVLink), or unknown
		case err != nil:
			return l, err
		case kind == nvml.NVLINK_DEVICE_TYPE_SWITCH: // like all others of the GPU
			l.Fabric, err = h.fabric(g)
			return l, err
		}
		peer, err := h.peer(link)
		if err != nil {
			return l, err
		}
		if !slices.Contains(l.Peers, peer) {
			l.Peers = append(l.Peers, peer)
		}
	}
	return l, nil
}

// noLink reports whether an error says that the GPU has no such link. nvml.h has a code for a number
// that is too high, and one for GPUs without NVLink, but none for a number that this GPU lacks.
func noLink(err error) bool {
	return session.Unsupported(err) || errors.Is(err, nvml.ERROR_INVALID_ARGUMENT)
}

// peer returns the address of the GPU at the other end of a link.
func (h *handle) peer(link int) (string, error) {
	info, err := session.Ask(h.Task, "DeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) { return h.Device.GetNvLinkRemotePciInfo(link) })
	if err != nil {
		return "", err
	}
	return session.AddressIn(info)
}

// fabric names the NVSwitches of a GPU that has links to some. From Hopper on they serve a GPU only after
// it has registered with NVIDIA's Fabric Manager (nvml.h, nvmlDeviceGetGpuFabricInfo). It is empty until
// then.
func (h *handle) fabric(g *gpu.GPU) (string, error) {
	major, _, err := h.ComputeCapability()
	if err != nil {
		return "", err
	}
	if major < mig.Hopper {
		return fabricName(g, nvml.GpuFabricInfo{}), nil
	}
	if !h.Has("nvmlDeviceGetGpuFabricInfo") { // it is deprecated
		return "", nil
	}
	info, err := session.Ask(h.Task, "DeviceGetGpuFabricInfo", h.Device.GetGpuFabricInfo)
	if err != nil || info.State != nvml.GPU_FABRIC_STATE_COMPLETED || nvml.Return(info.Status) != nvml.SUCCESS {
		return "", err
	}
	return fabricName(g, info), nil
}

// fabricName is the same for GPUs that may talk to each other. Only a fabric of several nodes has a UUID; others
// join GPUs of one model, because they are boards.
func fabricName(g *gpu.GPU, info nvml.GpuFabricInfo) string {
	if id := info.ClusterUuid; id != [len(id)]uint8{} {
		return fmt.Sprintf("%x-%x-%x-%x-%x.%d", id[:4], id[4:6], id[6:8], id[8:10], id[10:], info.CliqueId)
	}
	return fmt.Sprintf("nvswitch-%s.%d", g.PCIID, info.CliqueId)
}
