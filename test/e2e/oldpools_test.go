package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Version 0.1 had a pool for each GPU. A claim that was allocated from such a pool is
// prepared and released by a later version, which deletes the old pools. Meanwhile it
// offers nothing of the claim's GPU: the scheduler does not count in the new pool what was
// allocated from the old one.
func TestPoolsOfVersion01(t *testing.T) {
	s := start(t)
	published := s.slices(nodeA)
	startPlugin := s.keepPluginOff(nodeA)
	for _, slice := range published {
		err := s.client.ResourceV1().ResourceSlices().Delete(s.ctx, slice.Name, metav1.DeleteOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err) // the kubelet removes them, too
	}
	s.publishAsVersion01(nodeA, published)
	s.gpuPod("old", class1g10gb)
	var allocated resourceapi.DeviceRequestAllocationResult
	s.eventually("the pod is scheduled", func() (bool, string) {
		pod := s.pod("old")
		if pod.Spec.NodeName == "" {
			return false, s.eventsText("old")
		}
		allocated = s.allocated(pod, "")
		return true, ""
	})
	gpuID := gpu.OfDevice(allocated.Device)
	require.Equal(t, nodeA+"/"+gpuID, allocated.Pool)

	startPlugin()
	s.waitRunning("old")
	container := s.container("old")
	s.eventually("only the node's pool is left, without the GPU", func() (bool, string) {
		var pools []string
		for _, slice := range s.slices(nodeA) {
			pools = append(pools, slice.Spec.Pool.Name)
		}
		slices.Sort(pools)
		pools = slices.Compact(pools)
		on := len(s.devicesOn(nodeA, gpuID))
		return slices.Equal(pools, []string{nodeA}) && on == 0, fmt.Sprint(pools, " ", on)
	})
	s.gpuPods("whole", 7, classWhole)
	s.waitAllRunning(8)
	s.gpuPod("one-more", classWhole)
	s.waitUnschedulable("one-more")

	s.restartPlugin(nodeA)
	assert.Equal(t, container, s.container("old"))
	assert.Empty(t, s.devicesOn(nodeA, gpuID))
	s.delete("old")
	s.waitRunning("one-more")
	assert.Equal(t, gpuID, s.allocated(s.pod("one-more"), "").Device)
}

// publishAsVersion01 publishes what a node had published before in a pool for each GPU.
// The policy against other pools than the node's is away meanwhile, as it was then.
func (s *suite) publishAsVersion01(node string, published []resourceapi.ResourceSlice) {
	s.t.Helper()
	const policy = "tranche-pools"
	bindings := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(s.ctx, policy, metav1.GetOptions{})
	require.NoError(s.t, err)
	require.NoError(s.t, bindings.Delete(s.ctx, policy, metav1.DeleteOptions{}))
	defer func() {
		binding.ResourceVersion, binding.UID = "", ""
		_, err := bindings.Create(s.ctx, binding, metav1.CreateOptions{})
		require.NoError(s.t, err)
	}()
	counters := map[string]resourceapi.CounterSet{}
	for _, slice := range published {
		for _, set := range slice.Spec.SharedCounters {
			counters[set.Name] = set
		}
	}
	for _, slice := range published {
		if len(slice.Spec.Devices) == 0 {
			continue
		}
		gpuID := gpu.OfDevice(slice.Spec.Devices[0].Name)
		require.Contains(s.t, counters, gpuID)
		for _, content := range []resourceapi.ResourceSliceSpec{
			{SharedCounters: []resourceapi.CounterSet{counters[gpuID]}}, {Devices: slice.Spec.Devices},
		} {
			content.Driver, content.NodeName = names.DriverName, slice.Spec.NodeName
			content.Pool = resourceapi.ResourcePool{Name: node + "/" + gpuID, Generation: 1, ResourceSliceCount: 2}
			old := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
				GenerateName: strings.ReplaceAll(content.Pool.Name, "/", "-") + "-", OwnerReferences: slice.OwnerReferences,
			}, Spec: content}
			s.eventually("the API server takes the pools of version 0.1", func() (bool, string) {
				_, err := s.client.ResourceV1().ResourceSlices().Create(s.ctx, old, metav1.CreateOptions{})
				if !apierrors.IsForbidden(err) {
					require.NoError(s.t, err)
				}
				return err == nil, fmt.Sprint(err)
			})
		}
	}
}
