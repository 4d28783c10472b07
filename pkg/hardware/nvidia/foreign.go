package nvidia

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// operatorRoot is the root file system of the GPU operator's driver container, which
// contains nvidia-smi.
const operatorRoot = "/run/nvidia/driver"

// RemovalCommand implements hardware.Driver. It is empty for a whole GPU.
func (d *Driver) RemovalCommand(p gpu.Partition) string {
	id, ok := session.ID(p)
	if !ok {
		return ""
	}
	smi := "nvidia-smi"
	if d.cfg.HostDriverRoot == operatorRoot {
		smi = "chroot " + operatorRoot + " nvidia-smi"
	}
	// An incomplete one may have no compute instance: then the first command fails.
	then := "&&"
	if !p.Complete {
		then = ";"
	}
	return fmt.Sprintf("%s mig -i %s -dci -gi %d %s %s mig -i %s -dgi -gi %d", smi, p.GPU, id, then, smi, p.GPU, id)
}
