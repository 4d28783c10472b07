package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The plugin's own command says who owns partitions, and why a mode cannot change.
func TestHardwareCommand(t *testing.T) {
	s := startOnCluster(t)
	gpus := s.machine(nodeA).GPUs
	held, idle, pci := gpus[2].PCI, gpus[3].PCI, gpus[5].PCI
	s.gpuPodOn("holder", class1g10gb, held)
	pod := s.waitRunning("holder")
	device := s.allocated(pod, "").Device
	foreign := gpu.NameOf(pci) + "-mig-1g-10gb-2"
	s.byHand(action{Make: foreign})
	t.Cleanup(func() { s.byHand(action{Remove: foreign}) })
	s.setFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: idle, PID: 4711}}})

	plugin := s.plugin(nodeA).Name
	owner := "claim " + s.namespace + "/" + s.claims(pod)[0].Name + ", pod holder"
	text := s.kubectl("-n", pluginNamespace, "exec", plugin, "--", "tranche-kubelet-plugin", "hardware")
	assert.Regexp(t, device+" +MIG-[-0-9a-f]+ +"+owner, text)
	assert.Regexp(t, foreign+" +MIG-[-0-9a-f]+ +not made by Tranche: nvidia-smi mig -i "+pci, text)
	assert.Contains(t, text, "as long as process 4711, which no claim explains, uses the GPU")

	var told node.HardwareReport
	text = s.kubectl("-n", pluginNamespace, "exec", plugin, "--", "tranche-kubelet-plugin", "hardware", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &told), text)
	require.Len(t, told.GPUs, 8)
	holders := map[string]string{}
	for _, g := range told.GPUs {
		assert.Equal(t, g.Name == gpu.NameOf(idle), len(g.Obstacles) > 0, g.Name)
		for _, d := range g.Devices {
			holders[d.Name] = d.Claim
		}
	}
	assert.Equal(t, map[string]string{device: s.claims(pod)[0].Name, foreign: ""}, holders, text)
	s.clearFaults(nodeA)
	s.byHand(action{Remove: foreign})
}
