package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What many nodes have is summed up.
func TestKubectlTrancheSummary(t *testing.T) {
	s := start(t)
	s.gpuPodAt(nodeA, "holder", class3g40gb, "")
	s.waitRunning("holder")
	out := s.kubectl("tranche", "--summary", "-o", "wide")
	assert.Contains(t, out, "3 nodes, 20 GPUs: ")
	assert.Contains(t, out, "NVIDIA L4: 1 node, 4 GPUs, 4 of them unused\n")
	assert.Regexp(t, `held: +3g\.40gb ×1`, out)
	assert.Equal(t, "node/node-b\n", s.kubectl("tranche", "-l", "kubernetes.io/hostname=node-b", "-o", "name"))
	assert.Contains(t, s.kubectl("tranche", "-l", "kubernetes.io/hostname=none"), "No node has the labels kubernetes.io/hostname=none.")
}

// kubectl asks the program that completes names.
func TestKubectlTrancheCompletes(t *testing.T) {
	s := start(t)
	programs := absolute(filepath.Join(repository, "cmd", "kubectl-tranche"))
	path := programs + ":" + filepath.Join(s.cluster, "bin") + ":" + absolute(filepath.Join(repository, "bin")) + ":" + os.Getenv("PATH")
	out, err := s.try("env", "PATH="+path, "kubectl", "__complete", "tranche", "switches", "node-")
	require.NoError(t, err, out)
	assert.Contains(t, out, nodeA+"\n"+nodeB+"\n")
	out, err = s.try("env", "PATH="+path, "kubectl", "__complete", "tranche", "set-profile", nodeA, "all-b")
	require.NoError(t, err, out)
	assert.Contains(t, out, "all-balanced\n")
}

// The use of each partition is read through the API server.
func TestKubectlTrancheTop(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPodAt(nodeA, "busy", class1g10gb, "")
	s.waitRunning("busy")
	s.eventually("the partition is told with its pod", func() (bool, string) {
		out, _ := s.try("kubectl", "tranche", "top", "gpus", "--node", nodeA) // an error until it is measured
		return strings.Contains(out, s.namespace+"/busy") && strings.Contains(out, "1g.10gb"), out
	})
	assert.Contains(t, s.kubectl("tranche", "top", "pods", "-n", s.namespace), "busy")
	assert.Contains(t, s.kubectl("tranche", "top", "nodes"), nodeB)
}
