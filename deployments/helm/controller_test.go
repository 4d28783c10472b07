package helm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

func deploymentOf(t *testing.T, objects []runtime.Object) *appsv1.Deployment {
	t.Helper()
	return componentOf(t, objects, "controller")
}

// componentOf is the Deployment of a component.
func componentOf(t *testing.T, objects []runtime.Object, component string) *appsv1.Deployment {
	t.Helper()
	for _, d := range all[*appsv1.Deployment](objects) {
		if d.Spec.Selector.MatchLabels["app.kubernetes.io/component"] == component {
			return d
		}
	}
	require.FailNow(t, "no "+component)
	return nil
}

// flagsOf are the arguments of a container, by flag.
func flagsOf(c *corev1.Container) map[string]string {
	flags := map[string]string{}
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	return flags
}

// requireFlagsOf requires that a container runs a program, and with flags that this knows.
func requireFlagsOf(t *testing.T, program string, container *corev1.Container) {
	t.Helper()
	require.Equal(t, []string{"/usr/bin/" + program}, container.Command)
	files, err := filepath.Glob("../../cmd/" + program + "/*.go")
	require.NoError(t, err)
	source := ""
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		source += string(content)
	}
	for flag := range flagsOf(container) {
		if !slices.Contains([]string{"-v", "--logging-format"}, flag) {
			assert.Contains(t, source, `"`+strings.TrimPrefix(flag, "--")+`"`, "no flag of the program")
		}
	}
}

// TestControllerFlags: the program knows each flag, and the values' defaults are its
// own.
func TestControllerFlags(t *testing.T) {
	container := &deploymentOf(t, decode(t, render(t, chart))).Spec.Template.Spec.Containers[0]
	requireFlagsOf(t, "tranche-controller", container)
	flags := flagsOf(container)
	d := state.DefaultDeadlines()
	for flag, want := range map[string]time.Duration{
		"--planning-deadline": d.Planning, "--tainted-deadline": d.Tainted, "--force-deadline": d.Force, "--monitoring-deadline": d.Monitoring,
		"--applying-deadline": d.Applying, "--rebooting-deadline": d.Rebooting, "--verifying-deadline": d.Verifying, "--rolling-back-deadline": d.RollingBack,
		"--drain-deadline": 10 * time.Minute,
	} {
		got, err := time.ParseDuration(flags[flag])
		require.NoError(t, err, flag)
		assert.Equal(t, want, got, flag)
	}
	assert.Equal(t, strings.Join(controller.DefaultPauseLabels, ","), flags["--pause-labels"])
	assert.Equal(t, names.TaintStartup, flags["--startup-taint"])
	assert.Equal(t, strings.Join(controller.DefaultMonitoringNamespaces, ","), flags["--monitoring-namespaces"])
	assert.Equal(t, "1", flags["--max-unavailable"])
	assert.Equal(t, "10%", flagsOf(&deploymentOf(t, decode(t, render(t, chart, "--set", "controller.maxUnavailable=10%"))).Spec.Template.Spec.Containers[0])["--max-unavailable"])
}

// TestControllerHasNoPrivileges: it needs none, and what a namespace's "restricted"
// asks for is there.
func TestControllerHasNoPrivileges(t *testing.T) {
	deployment := deploymentOf(t, decode(t, render(t, chart)))
	pod := deployment.Spec.Template.Spec
	assert.EqualValues(t, 2, *deployment.Spec.Replicas)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	assertUnprivileged(t, &pod)
	for _, volume := range pod.Volumes {
		assert.NotNil(t, volume.ConfigMap, volume.Name)
	}
	require.Len(t, pod.TopologySpreadConstraints, 2)
	for _, c := range pod.TopologySpreadConstraints {
		assert.Equal(t, corev1.ScheduleAnyway, c.WhenUnsatisfiable, "one must not wait for a second node")
		assert.Equal(t, deployment.Spec.Selector.MatchLabels, c.LabelSelector.MatchLabels)
	}
	for _, toleration := range pod.Tolerations {
		assert.NotEmpty(t, toleration.Key, "a toleration of every taint would let it stay on a dead node")
	}
}

// assertUnprivileged: a pod has no privileges, and its container is probed.
func assertUnprivileged(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.NotZero(t, *pod.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.Len(t, pod.Containers, 1)
	security := pod.Containers[0].SecurityContext
	assert.False(t, *security.AllowPrivilegeEscalation)
	assert.True(t, *security.ReadOnlyRootFilesystem)
	assert.Nil(t, security.Privileged)
	assert.Equal(t, []corev1.Capability{"ALL"}, security.Capabilities.Drop)
	assert.NotNil(t, pod.Containers[0].LivenessProbe)
	assert.NotNil(t, pod.Containers[0].ReadinessProbe)
}

// TestControllerBudget: one pod may go at any time, and a single one is not held.
func TestControllerBudget(t *testing.T) {
	objects := decode(t, render(t, chart))
	budget := one[*policyv1.PodDisruptionBudget](t, objects)
	assert.Equal(t, deploymentOf(t, objects).Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels)
	assert.Equal(t, policyv1.AlwaysAllow, ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, ""))
	assert.Empty(t, all[*policyv1.PodDisruptionBudget](decode(t, render(t, chart, "--set", "controller.replicas=1"))))
}

// TestNoControllerlessMode: profiles need the controller, so it cannot be left out.
func TestNoControllerlessMode(t *testing.T) {
	_, errOut, err := helm(t, "template", "tranche", chart, "--kube-version", kubeVersion, "--set", "controller.enabled=false")
	require.Error(t, err)
	require.Contains(t, errOut, "'enabled' not allowed")
}

// TestMemoryModes: what AMD's memory modes need is there only with them.
func TestMemoryModes(t *testing.T) {
	const resource = "nodemodulesconfigs"
	has := func(objects []runtime.Object) bool {
		return slices.ContainsFunc(named[*rbacv1.ClusterRole](t, objects, "tranche-kubelet-plugin").Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, resource)
		})
	}
	objects := decode(t, render(t, chart))
	assert.False(t, has(objects))
	assert.NotContains(t, one[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].Args, "--amd-memory-partitions")
	objects = decode(t, render(t, chart, "--set", "amd.memoryPartitions.enabled=true"))
	assert.True(t, has(objects))
	assert.Contains(t, one[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].Args, "--amd-memory-partitions")

	policy := policyNamed(t, objects, "-node-modules")
	module := object{"metadata": object{"name": "node-a"}}
	require.Empty(t, policy.refusal(write{operation: "DELETE", from: "node-a", before: module}))
	const refused = "tranche-kubelet-plugin on node '%s' may delete the NodeModulesConfig of that node only, and this is %s of 'node-a'"
	for _, test := range [][]string{{"DELETE", "node-b"}, {"DELETE", ""}, {"UPDATE", "node-a"}, {"CREATE", "node-a"}} {
		want := strings.Replace(strings.Replace(refused, "%s", test[1], 1), "%s", test[0], 1)
		require.Equal(t, want, policy.refusal(write{operation: test[0], from: test[1], before: module, after: module}))
	}
}

// TestQuota: it allows the pods of both.
func TestQuota(t *testing.T) {
	values := func(args ...string) []string {
		quota := one[*corev1.ResourceQuota](t, decode(t, render(t, chart, append(args, "--set", "resourceQuota.enabled=true")...)))
		return quota.Spec.ScopeSelector.MatchExpressions[0].Values
	}
	assert.Equal(t, []string{"system-node-critical", "system-cluster-critical"}, values())
	assert.Equal(t, []string{"x"}, values("--set", "controller.priorityClassName=x,kubeletPlugin.priorityClassName=x"))
	assert.Equal(t, []string{"x", "system-cluster-critical"}, values("--set", "controller.priorityClassName=x,kubeletPlugin.priorityClassName=x,scheduler.enabled=true"))
}
