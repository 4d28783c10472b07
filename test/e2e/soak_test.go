package e2e

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// soakVariable says how long TestSoak takes ("10m"); without it there is none.
const soakVariable = "TRANCHE_SOAK"

// soakProfiles are the profiles between which the nodes change: all of them offer
// partitions, which is what the pods ask for.
var soakProfiles = map[string][]string{
	nodeA: {"dynamic", "all-balanced", "all-1g.10gb", "all-2g.20gb"},
	nodeC: {"cpx", "cpx-nps4", "dpx", "qpx"},
}

// soakEnds are the profiles at the end. Not every profile can follow every other one: DPX
// does not exist in memory mode NPS4, and is refused there. The memory mode outlasts a
// profile, so the last one puts it back.
var soakEnds = map[string]string{nodeA: "all-balanced", nodeC: "cpx-nps1"}

// soakPods is how many pods each node has.
const soakPods = 3

// Controllers, plugins and kubelets are killed at random while profiles change and pods
// run. At no time is more allocated than there is, and no pod is evicted that no plan
// names. In the end each node follows the profile that was set last, no taint is left,
// all pods run, and nothing of them is left in the hardware once they are deleted.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(soakVariable))
	if err != nil {
		t.Skipf("%s is not set: make soak", soakVariable)
	}
	s := startOnCluster(t)
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for node := range soakProfiles {
		s.unlabelAtEnd(node)
	}
	for node := range soakProfiles {
		s.soakDeployment(node) // last, so that it is gone before all pods are deleted
	}
	w := s.watchSwitches()
	kills := map[string]int{}
	asked := 0
	var doubled []string
	ended := map[string]bool{} // a GPUNode remembers the last few only
	for end := time.Now().Add(length); time.Now().Before(end); {
		node := []string{nodeA, nodeC}[dice.IntN(2)]
		switch dice.IntN(7) {
		case 0:
			s.killControllers()
			kills["controller"]++
		case 1:
			s.endPlugin(node)
			kills["plugin"]++
		case 2:
			s.onHost("cluster", "restart-kubelet", "--kill", "--dir", s.cluster, "--node", node)
			kills["kubelet"]++
		default:
			s.setProfileLabel(node, soakProfiles[node][dice.IntN(len(soakProfiles[node]))])
			asked++
		}
		s.noteSwitches(ended)
		doubled = append(doubled, s.doubled()...)
		time.Sleep(time.Duration(dice.IntN(15_000)) * time.Millisecond) // chance, not a condition
	}
	left, lost := 0, 0
	for node, profile := range soakEnds {
		s.setProfileLabel(node, profile)
		s.waitSoaked(node, profile)
		left += len(s.leftOfSwitches(node))
		for _, record := range s.gpuNode(node).Status.History {
			t.Logf("%s: %s → %s: %s %s after %s", node, record.FromProfileName, record.ToProfileName, record.Result, record.Reason, record.Duration.Round(time.Millisecond))
		}
		lost += soakPods - s.readyOf(node)
	}
	s.noteSwitches(ended)
	evicted, unnamed := s.unnamed(w)
	t.Logf("soak: %s, kills %v, %d profiles set, %d switches, %d pods evicted (%d without a plan), %d allocated twice, %d taints left, %d pods lost",
		length, kills, asked, len(ended), evicted, len(unnamed), len(doubled), left, lost)
	assert.NotEmpty(t, kills)
	assert.Empty(t, doubled, "allocated twice")
	assert.Empty(t, unnamed, "evicted without a plan that names the pod")
	assert.Zero(t, left, "taints left")
	assert.Zero(t, lost, "pods lost")
}

// endPlugin kills a node's plugin, whatever it is doing. The kubelet starts it again,
// later each time; where it waits with that, a new pod takes the old one's place.
func (s *suite) endPlugin(node string) {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(pluginNamespace)
	list, err := pods.List(s.ctx, metav1.ListOptions{
		LabelSelector: pluginLabel,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	require.NoError(s.t, err)
	for i := range list.Items {
		pod := &list.Items[i]
		if len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil {
			s.killProcesses(pod)
			continue
		}
		err := pods.Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
	}
}

// soakDeployment keeps pods with a partition each on a node.
func (s *suite) soakDeployment(node string) {
	s.t.Helper()
	s.template("partition", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request("gpu-partition.tranche.dev", "")}})
	s.deploy("soak-"+node, node, soakPods, fromTemplate("partition"))
	s.waitReady("soak-"+node, soakPods)
}

func (s *suite) readyOf(node string) int { return s.ready("soak-" + node) }

// soakPatience is how long a node may take at the end: a switch that has failed because
// of a kill is tried again after a while.
const soakPatience = 10 * time.Minute

func (s *suite) waitSoaked(node, profile string) {
	s.t.Helper()
	var n *v1beta1.GPUNode
	ok := assert.Eventually(s.t, func() bool {
		n = s.gpuNode(node)
		return n != nil && follows(profile)(n) && s.readyOf(node) == soakPods
	}, soakPatience, time.Second)
	require.True(s.t, ok, "%s does not come to rest in %s with %d pods:\n%s", node, profile, soakPods, gpuNodeText(n))
}

// noteSwitches takes in the switches that have ended.
func (s *suite) noteSwitches(ended map[string]bool) {
	s.t.Helper()
	for node := range soakProfiles {
		for _, record := range s.gpuNode(node).Status.History {
			ended[node+" "+record.StartTime.String()] = true
		}
	}
}
