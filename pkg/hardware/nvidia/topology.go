package nvidia

import (
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// locate says where in the machine the GPU sits. A machine that does not tell
// (a virtual one, often) is no error: the attributes stay empty.
func (d *Driver) locate(g *gpu.GPU) {
	sysfs := deviceattribute.WithFSFromRoot(d.cfg.SysRoot)
	numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(g.PCIAddress, deviceattribute.ScalarAttribute, sysfs)
	if err == nil {
		g.NUMANode = numa.Value.IntValue
	} else {
		d.cfg.Logger.V(4).Info("No NUMA node for GPU", "gpu", g.PCIAddress, "reason", err.Error())
	}
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(g.PCIAddress, sysfs)
	if err == nil && root.Value.StringValue != nil {
		g.PCIeRoot = *root.Value.StringValue
	} else if err != nil {
		d.cfg.Logger.V(4).Info("No PCIe root for GPU", "gpu", g.PCIAddress, "reason", err.Error())
	}
}
