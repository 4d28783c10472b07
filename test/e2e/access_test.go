package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kubectl works with the cluster's kubeconfig from this machine, logs and exec
// included.
func TestLogsAndExec(t *testing.T) {
	s := startOnCluster(t)
	pod := newPod("talks")
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo said by $HOSTNAME; sleep 1000000"}
	pod.Spec.NodeName = nodeB
	s.create(pod)
	s.waitRunning("talks")
	s.eventually("the log is there", func() (bool, string) {
		log := s.kubectl("-n", s.namespace, "logs", "talks")
		return log == "said by talks\n", log
	})
	assert.Equal(t, "talks\n", s.exec(s.namespace, "talks", "main", "hostname"))
	_, err := s.try("kubectl", "-n", s.namespace, "exec", "talks", "--", "false")
	require.ErrorContains(t, err, "exit status 1")
}

// kubectl tranche draws the GPUs of the cluster and who holds them.
func TestKubectlTranche(t *testing.T) {
	s := start(t)
	s.gpuPod("holder", class3g40gb)
	pod := s.waitRunning("holder")
	device := s.allocated(pod, "")

	out := s.kubectl("tranche")
	assert.Contains(t, out, "node-a: 8 × NVIDIA H100 80GB HBM3, driver 580.159.4")
	assert.Regexp(t, `(?m)^ +3g\.40gb +`+s.namespace+`/holder \(claim `+s.claims(pod)[0].Name+`\)`, out)
	assert.Contains(t, out, "node-b: 4 × NVIDIA L4")
	assert.Regexp(t, `(?m)free on node-b: whole GPU ×4$`, out)

	var picture struct {
		Nodes []struct {
			Name string
			GPUs []struct{ Name string }
		}
	}
	out = s.kubectl("tranche", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &picture), out)
	require.Len(t, picture.Nodes, 3)
	assert.Equal(t, nodeA, picture.Nodes[0].Name)
	assert.Len(t, picture.Nodes[0].GPUs, 8)
	assert.Len(t, picture.Nodes[1].GPUs, 4)
	assert.Len(t, picture.Nodes[2].GPUs, 8)
	assert.Contains(t, out, device.Device)
	assert.Contains(t, out, s.namespace)
}
