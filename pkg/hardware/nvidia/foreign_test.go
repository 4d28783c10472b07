package nvidia

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestRemovalCommand(t *testing.T) {
	whole := gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI 9", Complete: true}
	half := gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI 9"}
	m := simulated(t, "h100x8")
	assert.Equal(t, "nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 && nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(whole))
	assert.Equal(t, "nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 ; nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(half))
	assert.Empty(t, m.RemovalCommand(gpu.Partition{GPU: firstGPU, Type: gpu.TypeGPU, ID: "GPU"}))
	assert.Empty(t, m.RemovalCommand(gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI ?"}))
	m = simulated(t, "h100x8", func(c *Config) { c.HostDriverRoot = "/run/nvidia/driver" })
	assert.Equal(t, "chroot /run/nvidia/driver nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 && "+
		"chroot /run/nvidia/driver nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(whole))
}
