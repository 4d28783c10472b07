package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

const (
	foreignTaint   = names.TaintForeignPartition
	unhealthyTaint = names.TaintUnhealthy
)

// A partition that somebody makes by hand is left alone: what it covers is
// tainted, nothing else is, an event says how to remove it, and pods go
// elsewhere until it is gone.
func TestAForeignPartition(t *testing.T) {
	s := start(t)
	const index = 3
	pci := s.machine(nodeA).GPUs[index].PCI
	gpuID := gpu.NameOf(pci)
	// 3g.40gb at 4 covers the second half.
	foreign := gpuID + "-mig-3g-40gb-4"
	s.byHand(action{Make: foreign})
	t.Cleanup(func() { s.byHand(action{Remove: foreign}) })
	id := s.machine(nodeA).GPUs[index].Instances[0].ID

	covered := func(device string) bool {
		for _, part := range []string{"", "-memory-share", "-fraction-share", "-mig-7g-80gb-0", "-mig-3g-40gb-4", "-mig-2g-20gb-4", "-mig-1g-20gb-4", "-mig-1g-20gb-6",
			"-mig-1g-10gb-4", "-mig-1g-10gb-5", "-mig-1g-10gb-6", "-mig-1g-10gb-me-4", "-mig-1g-10gb-me-5", "-mig-1g-10gb-me-6"} {
			if device == gpuID+part {
				return true
			}
		}
		return false
	}
	s.eventually("what it covers is tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, foreignTaint)
		return len(tainted) == 14, strings.Join(tainted, "\n")
	})
	for _, device := range s.taintedDevices(nodeA, foreignTaint) {
		assert.True(t, covered(device), "%s has nothing to do with it", device)
	}
	s.waitNodeEvent(nodeA, "ForeignPartition", "GPU "+gpuID, foreign, "left alone",
		fmt.Sprintf("nvidia-smi mig -i %s -dci -gi %d && nvidia-smi mig -i %s -dgi -gi %d", pci, id, pci, id))

	// The other half is allocated, the foreign one and the whole GPU are not.
	s.gpuPodOn("beside", class3g40gb, pci)
	assert.Equal(t, gpuID+"-mig-3g-40gb-0", s.allocated(s.waitRunning("beside"), "").Device)
	s.gpuPodOn("waits", class1g10gb, pci)
	s.waitUnschedulable("waits")
	s.gpuPods("whole", 7, classWhole)
	s.waitAllRunning(8)
	assert.Equal(t, 2, s.machine(nodeA).instances(), "it is still there")

	s.byHand(action{Remove: foreign})
	s.eventually("the taints are gone", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, foreignTaint)
		return len(tainted) == 0, strings.Join(tainted, "\n")
	})
	s.waitRunning("waits")
}

// With foreignPartitions=adopt, partitions that nobody uses make room, and one that a process uses
// stays until the process ends.
func TestForeignPartitionsAreAdopted(t *testing.T) {
	s := startOnCluster(t)
	gpus := s.machine(nodeA).GPUs
	const left, used = 2, 5
	idle, busy := gpu.NameOf(gpus[left].PCI)+"-mig-3g-40gb-4", gpu.NameOf(gpus[used].PCI)+"-mig-1g-10gb-2"
	s.byHand(action{Make: idle})
	s.byHand(action{Make: busy})
	s.t.Cleanup(func() {
		for _, name := range []string{idle, busy} {
			_, _ = s.tryByHandOn(nodeA, action{Remove: name})
		}
	})
	instance := s.machine(nodeA).GPUs[used].Instances[0].ID
	s.setFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: gpus[used].PCI, GPUInstance: &instance, PID: 4711}}})
	s.eventually("what they cover is tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, foreignTaint)
		return slices.Contains(tainted, idle) && slices.Contains(tainted, busy), strings.Join(tainted, "\n")
	})
	s.gpuPodOn("waits", classWhole, gpus[left].PCI)
	s.waitUnschedulable("waits")
	s.set("foreignPartitions=adopt")
	t.Cleanup(func() { s.helm("rollback", release, "--wait", "--timeout", "8m") })

	s.waitNodeEvent(nodeA, "ForeignPartitionRemoved", idle)
	s.waitRunning("waits")
	s.waitNodeEvent(nodeA, "ForeignPartition", busy, "Tranche could not remove it", "4711")
	assert.Equal(t, 1, s.machine(nodeA).instances())
	s.clearFaults(nodeA)
	s.waitNodeEvent(nodeA, "ForeignPartitionRemoved", busy)
	assert.Zero(t, s.machine(nodeA).instances())
}

// taintedDevices lists the devices of a node that have a taint.
func (s *suite) taintedDevices(node, key string) (names []string) {
	s.t.Helper()
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			for _, taint := range slice.Spec.Devices[i].Taints {
				if taint.Key == key {
					assert.Equal(s.t, resourceapi.DeviceTaintEffectNoSchedule, taint.Effect)
					names = append(names, slice.Spec.Devices[i].Name)
				}
			}
		}
	}
	return names
}

// A GPU with a fatal error is out of service soon, its holders
// are named, their pods say so, and it stays so until the GPU was reset,
// whatever becomes of the plugin.
func TestAFatalXID(t *testing.T) {
	s := startOnCluster(t)
	const index = 6
	pci := s.machine(nodeA).GPUs[index].PCI
	gpuID := gpu.NameOf(pci)
	s.gpuPodOn("held", class1g10gb, pci)
	s.waitRunning("held")
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)

	struck := time.Now()
	s.setFaults(nvdriver.Faults{XIDs: []nvdriver.XID{{GPU: pci, XID: 119}}})
	s.eventually("the GPU is tainted", func() (bool, string) { return s.tainted(nodeA, gpuID, unhealthyTaint), "it is not" })
	took := time.Since(struck)
	assert.Less(t, took, time.Minute)
	t.Logf("tainted %s after the error", took.Round(time.Millisecond))
	assert.Len(t, s.taintedDevices(nodeA, unhealthyTaint), s.devicesOf(nodeA, gpuID), "no other GPU is")
	s.waitNodeEvent(nodeA, "GPUUnhealthy", gpuID, "119", "is held by claim "+s.namespace+"/", ", pod held")
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	assert.Equal(t, corev1.PodRunning, s.pod("held").Status.Phase, "nobody is driven away")

	s.clearFaults(nodeA)
	s.restartPlugin(nodeA)
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	assert.True(t, s.tainted(nodeA, gpuID, unhealthyTaint), "a restart mends no GPU")
	s.gpuPodOn("waits", class1g10gb, pci)
	s.waitUnschedulable("waits")

	s.delete("held")
	s.byHand(action{Reset: pci})
	s.eventually("the taint is gone", func() (bool, string) { return !s.tainted(nodeA, gpuID, unhealthyTaint), "it is still there" })
	s.waitNodeEvent(nodeA, "GPUHealthy", gpuID)
	s.waitRunning("waits")
}

func (s *suite) devicesOf(node, gpuID string) (count int) {
	for _, slice := range s.slices(node) {
		for _, d := range slice.Spec.Devices {
			if gpu.OfDevice(d.Name) == gpuID {
				count++
			}
		}
	}
	return count
}

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

	var told struct {
		GPUs []struct {
			Name      string
			Obstacles []string
			Devices   []struct{ Name, Owner string }
		}
	}
	text = s.kubectl("-n", pluginNamespace, "exec", plugin, "--", "tranche-kubelet-plugin", "hardware", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &told), text)
	require.Len(t, told.GPUs, 8)
	owners := map[string]string{}
	for _, g := range told.GPUs {
		assert.Equal(t, g.Name == gpu.NameOf(idle), len(g.Obstacles) > 0, g.Name)
		for _, d := range g.Devices {
			owners[d.Name] = d.Owner
		}
	}
	assert.Len(t, owners, 2, text)
	assert.Equal(t, owner, owners[device])
	s.clearFaults(nodeA)
	s.byHand(action{Remove: foreign})
}
