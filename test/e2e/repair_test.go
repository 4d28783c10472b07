package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Somebody removes the CDI folder of a node. It used to be created at the start of the
// plugin only: no claim could be prepared on the node until a person restarted the plugin,
// and containers of claims that were prepared before could not start again.
func TestTheCDIFolderIsRemoved(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPod("before", class1g10gb)
	before := s.waitRunning("before")
	file := cdiDir + "/gpu.tranche.dev-claim_" + string(s.claims(before)[0].UID) + ".json"
	s.onNode(nodeA, "test", "-e", file)

	s.onNode(nodeA, "rm", "-rf", cdiDir)
	s.gpuPod("after", class1g10gb)
	after := s.waitRunning("after")
	s.requireSees(after, "main", s.allocated(after, ""), "1g.10gb")
	s.eventually("the CDI file of the other claim is back", func() (bool, string) {
		out, err := s.tryOnNode(nodeA, "test", "-e", file)
		return err == nil, out
	})
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, s.container("before"))
	s.requireInstances(2)
}
