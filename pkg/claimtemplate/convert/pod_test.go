package convert

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// Each claim of a pod says what it asks for, whichever kind the claims before it are of.
func TestEveryClaimHasRequests(t *testing.T) {
	limit := func(name, resourceName string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceName(resourceName): resource.MustParse("1"),
		}}}
	}
	mig, whole := limit("mig", "nvidia.com/mig-1g.10gb"), limit("whole", "nvidia.com/gpu")
	for name, containers := range map[string][]corev1.Container{
		"a partition first": {mig, whole}, "a whole GPU first": {whole, mig}, "in between": {mig, whole, mig},
	} {
		pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}
		r := Pod(claimtemplate.Plain, pod)
		require.Empty(t, r.Problems, name)
		require.Len(t, r.Claims, len(containers), name)
		for _, c := range r.Claims {
			assert.NotEmpty(t, c.Spec.Devices.Requests, "%s: container %s", name, c.Container.Name)
		}
	}
}

// A claim of the pod's own does not hide the one for its limits.
func TestNameOfAnotherClaim(t *testing.T) {
	pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      "main",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}}}}
	r := Pod(claimtemplate.Plain, pod)
	claims := r.Claims
	require.Len(t, claims, 1)
	assert.Len(t, r.Notes, 2, "other ways: extended resources, and what a device plugin is configured to serve")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "unrelated"}}
	require.Empty(t, Pod(claimtemplate.Plain, pod).Problems)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claims[0].Name}}
	problems := Pod(claimtemplate.Plain, pod).Problems
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0], claims[0].Name+", which the claim for its limits gets")
}

// The annotations that were read are named, so that they can be taken away.
func TestAnnotationsThatWereRead(t *testing.T) {
	pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}}}}
	pod.Annotations = map[string]string{"nvidia.com/use-gputype": "H100"}
	r := Pod(claimtemplate.HAMi, pod)
	require.Empty(t, r.Problems)
	for _, key := range []string{"use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid"} {
		assert.Contains(t, r.Annotations, "nvidia.com/"+key)
	}
}

// A dot in the name of a resource stands for the plus of a profile, which has one.
func TestProfileOfResource(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{"nvidia.com/mig-1g.10gb": "1g.10gb", "nvidia.com/mig-1g.24gb.me": "1g.24gb+me", "nvidia.com/mig-2g.48gb.me.all": "2g.48gb+me.all"} {
		_, profile, is := plainRequest(name)
		assert.True(t, is)
		assert.Equal(t, want, profile)
	}
}
