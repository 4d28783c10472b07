package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

var oneNode = map[string]string{nodeA: inventory("h100x8")}

// An API server without DRAPartitionableDevices drops the counters that keep
// partitions apart. Whole GPUs are offered then, each once, and an event says
// why there is nothing else.
func TestRestrictedWithoutPartitionableDevices(t *testing.T) {
	onlyAtNight(t)
	s := startWith(t, oneNode, "DRAPartitionableDevices")
	s.waitNodeEvent(nodeA, "PartitionsNotPublished", "DRAPartitionableDevices is off", "whole GPUs only", "Turn the gate on")
	devices := 0
	for _, slice := range s.slices(nodeA) {
		assert.Empty(t, slice.Spec.SharedCounters)
		for i := range slice.Spec.Devices {
			assert.Equal(t, "gpu", *slice.Spec.Devices[i].Attributes["type"].StringValue)
			devices++
		}
	}
	assert.Equal(t, 8, devices)

	s.gpuPods("whole", 8, classWhole)
	s.waitAllRunning(8)
	s.requireNothingTwice()
	pod := s.pod("whole-0")
	s.requireSees(pod, "main", s.allocated(pod, ""), "gpu")
	s.gpuPod("one-more", classWhole)
	s.waitUnschedulable("one-more")
	s.gpuPod("part", class1g10gb)
	s.waitUnschedulable("part")
	assert.Zero(t, s.machine(nodeA).instances())
	s.delete("whole-3")
	s.waitRunning("one-more")
	s.requireNothingTwice()
}

// Without consumable capacity nobody could hold a part of a device: there are no
// shares, an event says why, and all else is as ever.
func TestRestrictedWithoutConsumableCapacity(t *testing.T) {
	onlyAtNight(t)
	s := startWith(t, oneNode, "DRAConsumableCapacity")
	s.waitNodeEvent(nodeA, "SharesNotPublished", "DRAConsumableCapacity is off", "Turn the gate on")
	assert.Empty(t, s.shareDevices(nodeA))
	s.sharePod("share", classFractionShare, nil)
	s.waitUnschedulable("share")
	s.delete("share")
	counters := 0
	for _, slice := range s.slices(nodeA) {
		counters += len(slice.Spec.SharedCounters)
	}
	require.NotZero(t, counters)
	s.gpuPods("small", 7, class1g10gb)
	s.gpuPod("large", class4g40gb)
	s.gpuPods("whole", 6, classWhole)
	s.waitAllRunning(14)
	assert.Equal(t, 8, s.machine(nodeA).instances())
	assert.Len(t, s.records(nodeA), 14)
	s.requireNothingTwice()
	s.gpuPod("one-more", classWhole)
	s.waitUnschedulable("one-more")
}

// Without taints of devices, the devices that a switch would taint are not published,
// unless a claim holds them, and a taint keeps new pods off the node.
func TestRestrictedWithoutDeviceTaints(t *testing.T) {
	s := startWith(t, oneNode, "DRADeviceTaints", "DRADeviceTaintRules")
	s.waitNodeEvent(nodeA, "TaintsNotPublished", "DRADeviceTaints is off", "Turn the gate on")
	all := s.deviceCount()
	pod := s.slowPod(nodeA, "held", classWhole, 600) // the profile keeps no whole GPU
	held := s.allocated(pod, "").Device
	s.setProfile("cut-in-three", cutInThree)
	s.labelProfile(nodeA, "cut-in-three")
	n := s.waitGPUNode(nodeA, "drains", inState(v1beta1.Draining))
	require.NotNil(t, n.Status.Node.PublishedTaints)
	assert.True(t, n.Status.Node.PublishedTaints.Withheld)
	assert.Equal(t, n.Status.Switch.ID, n.Status.Node.PublishedTaints.SwitchID)
	assert.Equal(t, []string{"taint " + names.TaintNodeSwitching + "=cut-in-three:NoSchedule"}, s.leftOfSwitches(nodeA))
	var published []string
	for _, slice := range s.slices(nodeA) {
		for _, d := range slice.Spec.Devices {
			published = append(published, d.Name)
		}
	}
	assert.Equal(t, []string{held}, published)

	s.delete("held")
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.eventually("everything is published again", func() (bool, string) {
		count := s.deviceCount()
		return count == all, fmt.Sprintf("%d devices, before %d", count, all)
	})
}

// deviceCount counts the devices that node-a publishes.
func (s *suite) deviceCount() (n int) {
	s.t.Helper()
	for _, slice := range s.slices(nodeA) {
		n += len(slice.Spec.Devices)
	}
	return n
}
