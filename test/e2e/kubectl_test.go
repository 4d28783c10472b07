package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Many nodes are summed up; this cluster is, if somebody asks for it.
func TestKubectlTrancheSummary(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPodAt(nodeA, "holder", class3g40gb, "")
	s.waitRunning("holder")

	out := s.kubectl("tranche", "--summary", "-o", "wide")
	assert.Contains(t, out, "3 nodes, 20 GPUs: ")
	assert.Contains(t, out, "NVIDIA L4: 1 node, 4 GPUs, 4 of them unused\n")
	assert.Regexp(t, `held: +3g\.40gb ×1`, out)
	assert.Regexp(t, `(?m)^node-b +Ready `, out)

	var sums struct {
		NodeCount, GPUCount int
		Models              []struct {
			Memory struct{ TotalBytes, HeldBytes int64 }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.kubectl("tranche", "--summary", "-o", "json")), &sums))
	assert.Equal(t, []int{3, 20}, []int{sums.NodeCount, sums.GPUCount})
	for _, m := range sums.Models {
		assert.Positive(t, m.Memory.TotalBytes)
	}
	assert.Equal(t, "node/node-b\n", s.kubectl("tranche", "-l", "kubernetes.io/hostname=node-b", "-o", "name"))
	assert.Contains(t, s.kubectl("tranche", "-l", "kubernetes.io/hostname=none"), "No node has the labels kubernetes.io/hostname=none.")

	out = s.kubectl("tranche", "version")
	assert.Regexp(t, `(?m)^tranche-kubelet-plugin: \S+ \(3 pods\)$`, out)
	assert.Regexp(t, `(?m)^tranche-controller: \S+ \(`, out)
}

// following is a command that runs while the test looks on.
type following struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (f *following) Write(text []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.Write(text)
}

func (f *following) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.String()
}

// followKubectl runs kubectl until the test ends.
func (s *suite) followKubectl(args ...string) *following {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	out := &following{}
	path := filepath.Join(s.cluster, "bin") + ":" + absolute(filepath.Join(repository, "bin")) + ":" + os.Getenv("PATH")
	command := exec.CommandContext(ctx, "env", append([]string{"PATH=" + path, "KUBECONFIG=" + filepath.Join(s.cluster, "kubeconfig"), "kubectl"}, args...)...)
	command.Stdout, command.Stderr = out, out
	require.NoError(s.t, command.Start())
	s.t.Cleanup(func() {
		cancel()
		_ = command.Wait()
	})
	return out
}

func (s *suite) waitSaid(f *following, text string) {
	s.t.Helper()
	s.eventually("kubectl says "+text, func() (bool, string) {
		said := f.String()
		return strings.Contains(said, text), said
	})
}

func TestKubectlTrancheWatch(t *testing.T) {
	s := start(t)
	out := s.followKubectl("tranche", "--watch", "--node", nodeA)
	s.waitSaid(out, "1 node, 8 GPUs, ")
	s.gpuPodAt(nodeA, "comes", class3g40gb, "")
	s.waitRunning("comes")
	s.waitSaid(out, "by "+s.namespace+"/comes")
	s.delete("comes")
	s.waitSaid(out, "released: 3g.40gb (")
	s.kubectl("cordon", nodeA)
	defer s.kubectl("uncordon", nodeA)
	s.waitSaid(out, " "+nodeA+": cordoned\n")
}

// kubectl asks the program that completes names.
func TestKubectlTrancheCompletes(t *testing.T) {
	s := start(t)
	programs := absolute(filepath.Join(repository, "cmd", "kubectl-tranche"))
	path := programs + ":" + filepath.Join(s.cluster, "bin") + ":" + absolute(filepath.Join(repository, "bin")) + ":" + os.Getenv("PATH")
	out, err := s.try("env", "PATH="+path, "kubectl", "__complete", "tranche", "switches", "node-")
	require.NoError(t, err, out)
	assert.Contains(t, out, nodeA+"\n"+nodeB+"\n")
	out, err = s.try("env", "PATH="+path, "kubectl", "__complete", "tranche", "profile", nodeA, "all-b")
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
