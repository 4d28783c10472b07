package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// installAgain returns what installs the chart as it was, and does so at the end
// of the test in any case.
func (s *suite) installAgain() (install func()) {
	s.t.Helper()
	values := filepath.Join(s.t.TempDir(), "values.yaml")
	require.NoError(s.t, os.WriteFile(values, []byte(s.helm("get", "values", release, "-o", "yaml")), 0o600))
	install = func() {
		s.t.Helper()
		s.helm("upgrade", "--install", release, chart, "--reset-values", "--values", values, "--wait", "--timeout", "8m")
		require.NoError(s.t, s.rolledOut())
		for _, node := range s.nodes {
			s.eventually(node+" publishes", func() (bool, string) { return len(s.slices(node)) > 0, "nothing" })
		}
	}
	s.t.Cleanup(install)
	return install
}

// With pods that hold GPUs, helm does not uninstall: it says who holds what, and
// everything goes on.
func TestUninstallRefused(t *testing.T) {
	s := startAtNight(t)
	s.installAgain()
	s.gpuPod("holder", class3g40gb)
	pod := s.waitRunning("holder")
	container := s.container("holder")
	published := s.watchSlices(nodeA)

	out, err := s.tryHelm("uninstall", release)
	require.Error(t, err, out)
	for _, part := range []string{
		"Tranche is not uninstalled", s.namespace + "/holder", s.claims(pod)[0].Name, s.allocated(pod, "").Device + " on node " + nodeA,
		"kubectl -n " + s.namespace + " delete pod holder", "--set uninstall.force=true",
	} {
		assert.Contains(t, out, part)
	}
	assert.True(t, published.lastChange().IsZero(), "slices have changed")
	s.eventually("nothing is left of what uninstalls", func() (bool, string) {
		left := s.leftInCluster("tranche-uninstall")
		return left == "", left
	})

	// What it says to keep Tranche, word by word.
	command := regexp.MustCompile(`helm -n \S+ rollback \S+ \d+`).FindString(out)
	require.NotEmpty(t, command, out)
	s.helm(strings.Fields(command)[3:]...)
	s.helm("upgrade", release, chart, "--reuse-values", "--wait", "--timeout", "8m")
	assert.Equal(t, container, s.container("holder"))
	s.gpuPod("after", class1g10gb)
	s.waitRunning("after")
}

// With force, pods keep what they hold, and the next installation releases it.
func TestUninstallForced(t *testing.T) {
	s := startAtNight(t)
	install := s.installAgain()
	s.gpuPod("holder", class1g10gb)
	s.waitRunning("holder")
	container := s.container("holder")

	s.set("uninstall.force=true")
	out := s.helm("uninstall", release)
	assert.Contains(t, out, s.namespace+"/holder")
	s.waitPluginsGone()
	for _, node := range s.nodes {
		assert.Empty(t, s.slices(node))
	}
	assert.Equal(t, container, s.container("holder"))
	s.requireInstances(1)
	s.requireClean(nodeB)
	s.requireClean(nodeC)

	install()
	assert.Equal(t, container, s.container("holder"))
	s.delete("holder")
	s.requireNothingLeft()
}

// Without pods that hold GPUs, nothing is left, in the cluster and on the nodes,
// and Tranche can be installed again.
func TestUninstall(t *testing.T) {
	s := startAtNight(t)
	install := s.installAgain()
	s.setProfile("cut-in-three", cutInThree)
	s.follow(nodeA, "cut-in-three")
	s.gpuPod("before", class1g10gb)
	s.gpuPodAt(nodeC, "before-amd", classCPX, "")
	s.waitRunning("before", "before-amd")
	s.loadScheduler()
	s.set("nodeLabels.enabled=true,extendedResources.nvidia.enabled=true,scheduler.enabled=true")
	s.eventually("the nodes are labelled", func() (bool, string) {
		return s.label(nodeA, "product") == "NVIDIA-H100-80GB-HBM3" && s.label(nodeA, "count") == "8" && s.label(nodeA, "memory") == "81559" &&
			s.label(nodeB, "product") == "NVIDIA-L4" && s.label(nodeB, "count") == "4", s.label(nodeA, "product") + s.label(nodeA, "memory")
	})
	whole := newPod("whole")
	whole.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	whole.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": "NVIDIA-L4"}
	s.create(whole)
	s.waitRunning("whole")
	s.delete("before", "before-amd", "whole")

	s.helm("uninstall", release)
	s.waitPluginsGone()
	for _, node := range s.nodes {
		s.requireClean(node)
		assert.Empty(t, s.slices(node))
		for _, key := range []string{"product", "count", "memory"} {
			assert.Empty(t, s.label(node, key), "%s has the label %s", node, key)
		}
	}
	s.requireNothingOfSwitches()
	s.eventually("nothing is left in the cluster", func() (bool, string) {
		left := s.leftInCluster("tranche")
		return left == "", left
	})

	// What is the administrator's stays: their profile, and the node's label.
	assert.Equal(t, "partitionprofile.tranche.dev/cut-in-three\n", s.kubectl("get", "partitionprofiles", "-o", "name"))
	install()
	s.waitFollows(nodeA, "cut-in-three")
	s.gpuPod("after", class1g10gb)
	s.waitRunning("after")
}

// On request the definitions go, too, and with them all objects of their kinds.
func TestUninstallWithDefinitions(t *testing.T) {
	s := startAtNight(t)
	install := s.installAgain()
	s.kubectl("apply", "-f", s.objectFile(v1beta1.ProfileKind, "of-a-person", `{rules: [{mig: {mode: Disabled}}]}`))
	s.set("crds.keep=false")
	s.helm("uninstall", release)
	s.waitPluginsGone()
	s.eventually("nothing is left in the cluster", func() (bool, string) {
		left := s.leftInCluster("tranche")
		return left == "", left
	})
	s.eventually("the definitions are gone", func() (bool, string) {
		left := s.kubectl("get", "customresourcedefinitions", "-o", "name")
		return !strings.Contains(left, "tranche.dev"), left
	})
	install()
	s.requireNoProfile()
	assert.NotContains(t, s.kubectl("get", "partitionprofiles", "-o", "name"), "of-a-person")
}

// requireNothingOfSwitches checks that nothing is left of what the controller writes.
func (s *suite) requireNothingOfSwitches() {
	s.t.Helper()
	assert.Empty(s.t, s.kubectl("get", "--ignore-not-found", "gpunodes", "-o", "name"))
	for _, name := range s.nodes {
		node, err := s.client.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		assert.Empty(s.t, node.Spec.Taints, name)
		for key, value := range node.Labels {
			assert.NotEqual(s.t, names.PausedValue, value, "%s of %s", key, name)
			assert.True(s.t, key == names.LabelProfile || !strings.Contains(key, "tranche.dev"), "%s has the label %s", name, key)
		}
		for key := range node.Annotations {
			assert.NotContains(s.t, key, "tranche.dev", name)
		}
	}
}

func (s *suite) label(node, key string) string {
	s.t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
	require.NoError(s.t, err)
	return n.Labels["nvidia.com/gpu."+key]
}

func (s *suite) waitPluginsGone() {
	s.t.Helper()
	s.eventually("the plugins have ended", func() (bool, string) {
		pods, err := s.client.CoreV1().Pods(pluginNamespace).List(s.ctx, metav1.ListOptions{LabelSelector: pluginLabel})
		require.NoError(s.t, err)
		_, err = s.client.AppsV1().DaemonSets(pluginNamespace).Get(s.ctx, pluginName, metav1.GetOptions{})
		return len(pods.Items) == 0 && apierrors.IsNotFound(err), "they have not"
	})
}

// requireClean checks that nothing of Tranche is on a node.
func (s *suite) requireClean(node string) {
	s.t.Helper()
	left := s.onNode(node, "sh", "-c", "find /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry "+cdiDir+" /etc/cdi "+simulateRoot+" -name '*tranche*' 2>/dev/null; "+
		"ls -d "+simulateRoot+" /var/lib/kubelet/plugins/"+names.DriverName+" 2>/dev/null; true")
	require.Empty(s.t, left, node)
}

// leftInCluster lists objects by a part of their names.
func (s *suite) leftInCluster(part string) string {
	s.t.Helper()
	all := s.kubectl("get", "-A", "--ignore-not-found", "-o", "name",
		"pods,daemonsets,deployments,poddisruptionbudgets,jobs,configmaps,leases,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,"+
			"validatingadmissionpolicies,validatingadmissionpolicybindings,deviceclasses,resourceslices")
	var left []string
	for line := range strings.Lines(all) {
		if _, name, _ := strings.Cut(line, "/"); strings.Contains(name, part) {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return strings.Join(left, "\n")
}
