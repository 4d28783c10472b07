package nvidia

import (
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// locate reads the NUMA node and the PCIe root of a GPU. Many virtual machines do not have
// them: the attributes stay empty.
func (d *Driver) locate(g *gpu.GPU) {
	sysfs := deviceattribute.WithFSFromRoot(d.cfg.SysRoot)
	numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(g.PCIAddress, deviceattribute.ScalarAttribute, sysfs)
	if err == nil {
		g.NUMANode = numa.Value.IntValue
	} else {
		d.cfg.Logger.V(4).Info("No NUMA node for GPU", "gpu", g.PCIAddress, "reason", err.Error())
	}
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(g.PCIAddress, sysfs)
	if err == nil {
		g.PCIeRoot = ptr.Deref(root.Value.StringValue, "")
	} else {
		d.cfg.Logger.V(4).Info("No PCIe root for GPU", "gpu", g.PCIAddress, "reason", err.Error())
	}
}
