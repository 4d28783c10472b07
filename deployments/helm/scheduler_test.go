package helm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const schedulerName = "tranche-scheduler"

// schedulerConfiguration is what the second scheduler reads.
func schedulerConfiguration(t *testing.T, objects []runtime.Object) (configuration struct {
	LeaderElection struct {
		LeaderElect                     bool
		ResourceName, ResourceNamespace string
	}
	Profiles []map[string]any
}) {
	t.Helper()
	content := named[*corev1.ConfigMap](t, objects, schedulerName).Data["config.yaml"]
	require.NoError(t, yaml.Unmarshal([]byte(content), &configuration))
	require.Len(t, configuration.Profiles, 1)
	return configuration
}

// TestScheduler: nothing of the second scheduler is there by default; where it is, it has the
// rights of the default one, and a lease of its own, which is deleted in the end.
func TestScheduler(t *testing.T) {
	assert.NotContains(t, strings.Join(render(t, chart), "\n"), schedulerName)

	objects := decode(t, render(t, chart, "--set", "scheduler.enabled=true"))
	deployment := named[*appsv1.Deployment](t, objects, schedulerName)
	pod := deployment.Spec.Template.Spec
	account := named[*corev1.ServiceAccount](t, objects, pod.ServiceAccountName)
	assert.ElementsMatch(t, []string{"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader", schedulerName}, subjects(objects, account.Name))
	assert.Equal(t, "kube-system", named[*rbacv1.RoleBinding](t, objects, schedulerName+"-authentication-reader").Namespace)
	assert.Equal(t, deployment.Spec.Selector, named[*policyv1.PodDisruptionBudget](t, objects, schedulerName).Spec.Selector)
	assert.NotSubset(t, deployment.Spec.Template.Labels, deploymentOf(t, objects).Spec.Selector.MatchLabels)

	leader := schedulerConfiguration(t, objects).LeaderElection
	assert.True(t, leader.LeaderElect)
	assert.Equal(t, namespace, leader.ResourceNamespace)
	assert.Equal(t, []string{leader.ResourceName}, named[*rbacv1.Role](t, objects, schedulerName).Rules[1].ResourceNames)
	assert.Contains(t, one[*batchv1.Job](t, hooks(t)).Spec.Template.Spec.Containers[0].Args, "--scheduler="+leader.ResourceName)
	assert.Equal(t, leader.ResourceName, deployment.Name, "the hook takes the name of one for the other")

	container := pod.Containers[0]
	assert.Equal(t, "registry.k8s.io/kube-scheduler:v"+kubeVersion, container.Image)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
}

// TestSchedulerImage: it is that of the API server, whatever a vendor adds to its version.
func TestSchedulerImage(t *testing.T) {
	for set, want := range map[string]string{
		"scheduler.port=10259":                               "registry.k8s.io/kube-scheduler:v1.36.4",
		"global.imageRegistry=mirror.example,image.tag=edge": "mirror.example/kube-scheduler:v1.36.4",
		"scheduler.image.tag=v1.36.9":                        "registry.k8s.io/kube-scheduler:v1.36.9",
	} {
		objects := decode(t, render(t, chart, "--kube-version", "1.36.4-gke.100", "--set", "scheduler.enabled=true,"+set))
		assert.Equal(t, want, named[*appsv1.Deployment](t, objects, schedulerName).Spec.Template.Spec.Containers[0].Image)
	}
}

// TestSchedulerRestarts: it reads its configuration at start only.
func TestSchedulerRestarts(t *testing.T) {
	annotations := func(set string) map[string]string {
		objects := decode(t, render(t, chart, "--set", "scheduler.enabled=true,"+set))
		return named[*appsv1.Deployment](t, objects, schedulerName).Spec.Template.Annotations
	}
	assert.NotEqual(t, annotations("scheduler.filterTimeout=1s"), annotations("scheduler.filterTimeout=3s"))
}

// TestSchedulerMetrics: who may read metrics reaches the port of the scheduler.
func TestSchedulerMetrics(t *testing.T) {
	objects := decode(t, render(t, chart, "--values", "testdata/custom.values.yaml"))
	ports := one[*networkingv1.NetworkPolicy](t, objects).Spec.Ingress[0].Ports
	require.Len(t, ports, 2)
	container := named[*appsv1.Deployment](t, objects, "acme-gpu-scheduler").Spec.Template.Spec.Containers[0]
	assert.Equal(t, container.Ports[0].Name, ports[1].Port.StrVal)
}

// TestProfileForTheClustersScheduler: the profile to paste into a scheduler's configuration is
// that of the second scheduler.
func TestProfileForTheClustersScheduler(t *testing.T) {
	var pasted struct{ Profiles []map[string]any }
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, "../kube-scheduler.yaml")), &pasted))
	require.Len(t, pasted.Profiles, 1)
	ours := schedulerConfiguration(t, decode(t, render(t, chart, "--set", "scheduler.enabled=true"))).Profiles[0]
	ours["schedulerName"] = corev1.DefaultSchedulerName
	assert.Equal(t, ours, pasted.Profiles[0])
}
