package helm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const withPage = "webPage.enabled=true"

// TestPageIsOfItsOwn: with the page nothing of the controller changes, and nothing of the page is
// there without it.
func TestPageIsOfItsOwn(t *testing.T) {
	plain, page := render(t, chart), render(t, chart, "--set", withPage)
	for _, document := range plain {
		assert.Contains(t, page, document)
	}
	for _, object := range decode(t, plain) {
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		assert.False(t, strings.HasPrefix(accessor.GetName(), "tranche-web"), "%T %s", object, accessor.GetName())
	}
	objects := decode(t, page)
	assert.Equal(t, "tranche-web", componentOf(t, objects, "web").Spec.Template.Spec.ServiceAccountName)
	assert.Equal(t, []string{"tranche-web"}, subjects(objects, "tranche-web"))
	named[*corev1.ServiceAccount](t, objects, "tranche-web")
	service := named[*corev1.Service](t, objects, "tranche-web")
	assert.Equal(t, componentOf(t, objects, "web").Spec.Selector.MatchLabels, service.Spec.Selector)
}

// TestPods of the page: without privileges, spread, with flags that the program knows.
func TestPodsOfThePage(t *testing.T) {
	objects := decode(t, render(t, chart, "--set", withPage+",webPage.tlsSecret=page,webPage.port=9443"))
	deployment := componentOf(t, objects, "web")
	pod := &deployment.Spec.Template.Spec
	assertUnprivileged(t, pod)
	requireFlagsOf(t, "tranche-web", &pod.Containers[0])
	assert.Equal(t, ":9443", flagsOf(&pod.Containers[0])["--address"])
	assert.NotNil(t, pod.Containers[0].Resources.Limits.Memory())
	require.Len(t, pod.TopologySpreadConstraints, 1)
	assert.Equal(t, corev1.ScheduleAnyway, pod.TopologySpreadConstraints[0].WhenUnsatisfiable)
	require.Len(t, pod.Volumes, 1)
	assert.Equal(t, "page", pod.Volumes[0].Secret.SecretName)
	assert.Equal(t, pod.Containers[0].VolumeMounts[0].MountPath, flagsOf(&pod.Containers[0])["--cert-dir"])
	budget := named[*policyv1.PodDisruptionBudget](t, objects, "tranche-web")
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels)

	alone := decode(t, render(t, chart, "--set", withPage+",webPage.replicas=1"))
	assert.Len(t, all[*policyv1.PodDisruptionBudget](alone), 1, "that of the controller")
	assert.Empty(t, componentOf(t, alone, "web").Spec.Template.Spec.Volumes)
}
