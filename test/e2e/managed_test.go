package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
)

// With managedNodes, nodes without the label are left alone. What pods hold there is released
// as always.
func TestManagedNodes(t *testing.T) {
	const label = "example.com/tranche"
	s := startOnCluster(t)
	s.installAgain()
	s.gpuPod("holder", class1g10gb)
	s.waitRunning("holder")
	s.set(`managedNodes.example\.com/tranche=here`)
	require.NoError(t, s.rolledOut())
	for _, node := range []string{nodeB, nodeC} {
		s.eventually(node+" publishes nothing", func() (bool, string) { return len(s.slices(node)) == 0, fmt.Sprint(len(s.slices(node)), " slices") })
	}
	s.waitNodeEvent(nodeB, "OtherOwner", "does not have the labels "+label+"=here", "label the node")
	s.eventually("the devices beside the pod's are tainted", func() (bool, string) {
		for _, slice := range s.slices(nodeA) {
			for i := range slice.Spec.Devices {
				taints := slice.Spec.Devices[i].Taints
				if len(taints) != 1 || taints[0].Key != names.TaintOtherOwner || taints[0].Value != "unmanaged" {
					return false, slice.Spec.Devices[i].Name
				}
			}
		}
		return len(s.slices(nodeA)) > 0, "nothing is published"
	})
	s.delete("holder")
	assert.Equal(t, 0, s.machine(nodeA).instances())
	s.eventually(nodeA+" publishes nothing", func() (bool, string) { return len(s.slices(nodeA)) == 0, "" })

	t.Cleanup(func() { s.kubectl("label", "node", nodeA, label+"-") })
	s.kubectl("label", "node", nodeA, label+"=here")
	s.gpuPod("back", class1g10gb)
	s.waitRunning("back")
	s.delete("back")
}
