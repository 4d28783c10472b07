package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
