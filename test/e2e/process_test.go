package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestThePluginKilledDuringPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		call string
		// reached reports whether the plugin has come as far as it shall.
		reached func(*suite) bool
	}{
		"before the GPU instance": {"CreateGpuInstance", func(s *suite) bool {
			return len(s.records(nodeA)) == 1
		}},
		"between GPU instance and compute instance": {"CreateComputeInstance", func(s *suite) bool {
			return s.machine(nodeA).instances() == 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startAtNight(t)
			// A new pod, so that the kubelet starts its container again at once.
			plugin := s.restartPlugin(nodeA)
			slow := nvdriver.CallFault{Call: test.call, GPU: "*", Times: 1, Delay: metav1.Duration{Duration: 20 * time.Second}}
			s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{slow}})
			s.gpuPod("patient", class1g10gb)
			nudge := s.nudging()
			s.eventually("the plugin is in the middle of it", func() (bool, string) {
				nudge(s.pod("patient"))
				return test.reached(s), s.machine(nodeA).String() + s.eventsText("patient")
			})
			s.killPlugin(plugin)
			pod := s.waitRunning("patient")
			s.requireInstances(1)
			require.Equal(t, s.nodesOf(nodeA, s.allocated(pod, "")), s.seen(pod, "main"))
			again := s.plugin(nodeA)
			assert.Equal(t, plugin.UID, again.UID)
			assert.GreaterOrEqual(t, again.Status.ContainerStatuses[0].RestartCount, int32(1))
			s.delete("patient")
			assert.Zero(t, s.machine(nodeA).instances())
		})
	}
}

// A second plugin on a node ends at once and says who is there already.
func TestTwoPluginsOnOneNode(t *testing.T) {
	s := startOnCluster(t)
	first := s.plugin(nodeA)
	set, err := s.client.AppsV1().DaemonSets(pluginNamespace).Get(s.ctx, pluginName, metav1.GetOptions{})
	require.NoError(t, err)
	second := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "second-plugin-", Namespace: pluginNamespace},
		Spec:       set.Spec.Template.Spec,
	}
	second.Spec.NodeName = nodeA
	second.Spec.RestartPolicy = corev1.RestartPolicyNever
	// One of the same installation would be a rolling update.
	second.Spec.Containers[0].Args = append(second.Spec.Containers[0].Args, "--installation=other/tranche")
	pods := s.client.CoreV1().Pods(pluginNamespace)
	second, err = pods.Create(s.ctx, second, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pods.Delete(s.ctx, second.Name, now()) })
	s.eventually("the second plugin ends", func() (bool, string) {
		pod, err := pods.Get(s.ctx, second.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Status.Phase == corev1.PodFailed, string(pod.Status.Phase)
	})
	log := s.kubectl("-n", pluginNamespace, "logs", second.Name)
	assert.Regexp(t, `, pid \d+ of `+first.Name+`\) runs on this node`, log)
	assert.Contains(t, log, "end it first")
	assert.NotContains(t, strings.ToLower(log), "panic")

	assert.Equal(t, first.UID, s.plugin(nodeA).UID)
	s.requireNextPodRuns()
}
