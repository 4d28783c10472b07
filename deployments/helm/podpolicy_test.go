package helm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Where replicas are requested one by one, a pod that requests more is refused with the
// container and the resource.
func TestAtMostOne(t *testing.T) {
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](decode(t, render(t, chart))) {
		require.NotContains(t, p.Name, "at-most-one")
	}
	objects := decode(t, render(t, chart, "--set-json", `extendedResources.atMostOne=["nvidia.com/gpu","nvidia.com/mig-1g.5gb"]`))
	requireBound(t, objects)
	policy := policyNamed(t, objects, "-at-most-one")
	container := func(name, resourceName, quantity string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceName(resourceName): resource.MustParse(quantity), "cpu": resource.MustParse("4"),
		}}}
	}
	for name, test := range map[string]struct {
		init, main []corev1.Container
		want       string
	}{
		"no limits":        {nil, []corev1.Container{{Name: "main"}}, ""},
		"one":              {[]corev1.Container{container("init", "nvidia.com/gpu", "1")}, []corev1.Container{container("main", "nvidia.com/gpu", "1")}, ""},
		"another resource": {nil, []corev1.Container{container("main", "amd.com/gpu", "8")}, ""},
		"two": {nil, []corev1.Container{container("main", "nvidia.com/gpu", "2"), container("side", "nvidia.com/mig-1g.5gb", "7")},
			"container main requests 2 of nvidia.com/gpu, container side requests 7 of nvidia.com/mig-1g.5gb: a container can request one (chart value extendedResources.atMostOne)"},
		"two at first": {[]corev1.Container{container("init", "nvidia.com/gpu", "2k")}, []corev1.Container{{Name: "main"}},
			"container init requests 2k of nvidia.com/gpu: a container can request one (chart value extendedResources.atMostOne)"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: test.init, Containers: test.main}}
		require.True(t, policy.concerns(creating(pod)), name)
		require.Equal(t, test.want, policy.refusal(creating(pod)), name)
	}
}
