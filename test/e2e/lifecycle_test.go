package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	release = "tranche"
	chart   = repository + "/deployments/helm/tranche"
)

// helm runs helm on the release's namespace, which must succeed.
func (s *suite) helm(args ...string) string {
	s.t.Helper()
	out, err := s.tryHelm(args...)
	require.NoError(s.t, err, "helm %s: %s", strings.Join(args, " "), out)
	return out
}

func (s *suite) tryHelm(args ...string) (string, error) {
	return s.try("helm", append([]string{"-n", pluginNamespace}, args...)...)
}

// While helm upgrades and rolls back, pods come and go as if nothing were, those
// that run are not disturbed, and nothing is written that is published already.
func TestUpgradeAndRollback(t *testing.T) {
	s := startAtNight(t)
	s.gpuPod("small", class1g10gb)
	s.gpuPod("large", class3g40gb)
	s.waitRunning("small", "large")
	before := map[string]string{"small": s.container("small"), "large": s.container("large")}
	published := s.watchSlices(nodeA)
	versions := published.all()

	for _, change := range [][]string{
		{"upgrade", release, chart, "--reuse-values", "--set", "kubeletPlugin.logVerbosity=3", "--wait", "--timeout", "8m"},
		{"rollback", release, "--wait", "--timeout", "8m"},
	} {
		old := s.plugin(nodeA).UID
		churn := s.churnDuring(func() error {
			out, err := s.tryHelm(change...)
			if err != nil {
				return fmt.Errorf("helm %s: %w: %s", strings.Join(change, " "), err, out)
			}
			return s.rolledOut()
		})
		assert.NotEqual(t, old, s.plugin(nodeA).UID, "helm %s has not replaced the plugin, so this test shows nothing", change[0])
		assert.True(t, churn.together, "the old and the new plugin were never seen together")
		t.Logf("helm %s: %d pods came and went, the slowest ran after %s", change[0], churn.pods, churn.slowest)
	}

	for name, container := range before {
		assert.Equal(t, container, s.container(name), name)
	}
	assert.Equal(t, versions, published.all(), "slices were written again: %s", published.lastWritten())
	assert.True(t, published.lastChange().IsZero(), "slices were written in between")
	s.requireInstances(2)
}

// container is the ID of the container of a running pod.
func (s *suite) container(name string) string {
	s.t.Helper()
	pod := s.pod(name)
	require.Equal(s.t, corev1.PodRunning, pod.Status.Phase)
	require.Zero(s.t, pod.Status.ContainerStatuses[0].RestartCount)
	return pod.Status.ContainerStatuses[0].ContainerID
}

// rolledOut waits until all plugins are the new ones, and the old ones are gone.
func (s *suite) rolledOut() error {
	for deadline := time.Now().Add(patienceOnCluster); time.Now().Before(deadline); time.Sleep(glance) {
		set, err := s.client.AppsV1().DaemonSets(pluginNamespace).Get(s.ctx, pluginName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := s.client.CoreV1().Pods(pluginNamespace).List(s.ctx, metav1.ListOptions{LabelSelector: pluginLabel})
		if err != nil {
			return err
		}
		if isRolledOut(set) && len(pods.Items) == int(set.Status.DesiredNumberScheduled) {
			return nil
		}
	}
	return fmt.Errorf("the plugins are not all new after %s", patienceOnCluster)
}

func isRolledOut(set *appsv1.DaemonSet) bool {
	return set.Status.ObservedGeneration == set.Generation &&
		set.Status.UpdatedNumberScheduled == set.Status.DesiredNumberScheduled &&
		set.Status.NumberAvailable == set.Status.DesiredNumberScheduled
}

// churn is what was seen while pods came and went.
type churn struct {
	pods    int
	slowest time.Duration
	// together reports whether two plugins worked on one node at once.
	together bool
}

// churnDuring makes pods come and go until something is done. None may fail, and
// none may see an error of the driver.
func (s *suite) churnDuring(do func() error) (seen churn) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	together := s.watchForTwoPlugins()
	defer func() { seen.together = together() }()
	nudge := s.nudging()
	for round := 0; ; round++ {
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprintf("churn-%d-%d", round, i))
		}
		began := time.Now()
		for _, name := range names {
			s.gpuPod(name, class1g10gb)
		}
		for _, name := range names {
			s.eventually("pod "+name+" runs", func() (bool, string) {
				pod := s.pod(name)
				nudge(pod)
				phase := pod.Status.Phase
				require.NotEqual(s.t, corev1.PodFailed, phase, s.eventsText(name))
				return phase == corev1.PodRunning, s.eventsText(name)
			})
			seen.slowest = max(seen.slowest, time.Since(began).Round(time.Millisecond))
			assert.Empty(s.t, s.prepareFailures(name))
		}
		s.delete(names...)
		seen.pods += len(names)
		select {
		case err := <-done:
			require.NoError(s.t, err)
			return seen
		default:
		}
	}
}

// prepareFailures is what the kubelet says that went wrong with a pod's claims. It
// leaves out that the API server did not yet know that the pod is on the node
// when the kubelet first asked for its claim: no driver has heard of it then.
func (s *suite) prepareFailures(pod string) (failures []string) {
	for line := range strings.Lines(s.eventsText(pod)) {
		if strings.HasPrefix(line, prepareFailed) && !strings.Contains(line, "no relationship found between node") {
			failures = append(failures, line)
		}
	}
	return failures
}

// watchForTwoPlugins looks all the time whether two plugins run on node-a, until
// it is asked whether they did.
func (s *suite) watchForTwoPlugins() (seen func() bool) {
	ctx, cancel := context.WithCancel(s.ctx)
	result := make(chan bool)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(glance) {
			if s.twoPlugins() {
				break
			}
		}
		result <- ctx.Err() == nil
	}()
	return func() bool { cancel(); return <-result }
}

// twoPlugins reports whether two plugins run on node-a.
func (s *suite) twoPlugins() bool {
	pods, err := s.client.CoreV1().Pods(pluginNamespace).List(s.ctx, metav1.ListOptions{
		LabelSelector: pluginLabel, FieldSelector: "spec.nodeName=" + nodeA,
	})
	if err != nil {
		return false
	}
	running := 0
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running > 1
}
