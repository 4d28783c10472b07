package sysfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// hopsFile has a number for each GPU of the hive, the GPU itself included, from Linux 6.5 on
// (amdgpu_xgmi_show_num_hops in Linux' amdgpu_xgmi.c).
const hopsFile = "xgmi_num_hops"

// links returns the XGMI hive of the GPU, if each GPU of it is one hop away. If that cannot be read, it is what it
// was. KFD's links do not tell the hops of a GPU that is partitioned
// (kfd_fill_gpu_xgmi_link_to_gpu in Linux' kfd_crat.c).
func (c *GPU) links() gpu.Links {
	hive, err := c.hive()
	text := ""
	if err == nil && hive != 0 {
		text, err = c.ReadOptional(c.File(hopsFile))
	}
	if err != nil {
		c.machine.logger.Info("The XGMI links of a GPU cannot be read", "gpu", c.PCIAddress, "reason", err.Error())
		before, _ := c.machine.Known(c.PCIAddress)
		return gpu.Links{Fabric: before.LinkGroup}
	}
	if !oneHop(text) {
		return gpu.Links{}
	}
	return gpu.Links{Fabric: fmt.Sprintf("xgmi-%016x", hive)}
}

// hive is the number of the GPU's hive, which all its KFD nodes have. It is zero for a GPU in no hive, unless
// that is partitioned (kgd2kfd_device_init in Linux' kfd_device.c): such a GPU has no hopsFile.
func (c *GPU) hive() (uint64, error) {
	top, err := c.machine.recentTopology(c.Task)
	if err != nil {
		return 0, err
	}
	a, err := ParseAddress(c.PCIAddress)
	if err != nil {
		return 0, err
	}
	for _, n := range top.Of(a) {
		return n.Hive, nil
	}
	return 0, nil
}

// oneHop reports whether of several GPUs one, this one, is no hop away, and each other one hop. The hops are
// the lowest three bits of a number: "00 41 41 41" (amdgpu_xgmi_get_hops_count).
func oneHop(text string) bool {
	counts := map[uint64]int{}
	for _, field := range strings.Fields(text) {
		n, err := strconv.ParseUint(field, 16, 8)
		if err != nil {
			return false
		}
		counts[n&7]++
	}
	return counts[0] == 1 && counts[1] > 0 && len(counts) == 2
}
