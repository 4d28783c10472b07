package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The API server goes away, and meanwhile the plugin dies. The plugin waits for
// it, running pods go on, and new ones run when it is back.
func TestAPIServerAway(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPod("before", class1g10gb)
	s.waitRunning("before")
	container := s.container("before")
	plugin := s.plugin(nodeA)

	s.onHost("cluster", "stop-apiserver", "--dir", s.cluster, "--kill")
	s.killPlugin(plugin)
	s.onHost("cluster", "start-apiserver", "--dir", s.cluster)

	s.gpuPod("after", class1g10gb)
	s.waitRunning("after")
	assert.Equal(t, container, s.container("before"))
	s.requireInstances(2)
	s.requireNothingTwice()
	s.delete("before", "after")

	// A switch goes on, too.
	s.setProfile("cut-in-three", cutInThree)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "CreateGpuInstance", GPU: "*", Delay: metav1.Duration{Duration: 500 * time.Millisecond}},
	}})
	s.labelProfile(nodeA, "cut-in-three")
	s.waitGPUNode(nodeA, "is being changed", inState(v1beta1.Applying))
	s.onHost("cluster", "stop-apiserver", "--dir", s.cluster, "--kill")
	s.onHost("cluster", "start-apiserver", "--dir", s.cluster)
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// A pod that is deleted by force frees its claim before the kubelet has stopped
// its container. Whoever gets the same piece next waits for it to be free.
func TestForceDeletedPod(t *testing.T) {
	s := start(t)
	s.gpuPod("forced", class1g10gb)
	s.waitRunning("forced")
	first := s.allocated(s.pod("forced"), "")

	s.kubectl("-n", s.namespace, "delete", "pod", "forced", "--force", "--grace-period=0")
	s.gpuPod("next", class1g10gb)
	next := s.allocated(s.waitRunning("next"), "")
	t.Logf("first %s, next %s", first.Device, next.Device)
	s.requireInstances(1)
	s.requireSees(s.pod("next"), "main", next, "1g.10gb")
}
