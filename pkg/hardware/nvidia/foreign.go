package nvidia

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/instance"
)

// operatorRoot is where the GPU operator's driver container has its root file
// system: nvidia-smi is in there and not on the host.
const operatorRoot = "/run/nvidia/driver"

// RemovalCommand is what a person types on the node to remove a partition, for
// those that we leave alone because they are not ours. It is empty for what is
// no partition.
func (d *Driver) RemovalCommand(p gpu.Partition) string {
	id, ok := instance.ID(p)
	if !ok {
		return ""
	}
	smi := "nvidia-smi"
	if d.cfg.HostDriverRoot == operatorRoot {
		smi = "chroot " + operatorRoot + " nvidia-smi"
	}
	// A half-made one may have no compute instance, which nvidia-smi calls a
	// failure.
	then := "&&"
	if !p.Complete {
		then = ";"
	}
	return fmt.Sprintf("%s mig -i %s -dci -gi %d %s %s mig -i %s -dgi -gi %d", smi, p.GPU, id, then, smi, p.GPU, id)
}
