package claimtemplates

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// The cache has what the controller uses of a pod.
func TestTheCacheKeepsLittle(t *testing.T) {
	limits := func(name corev1.ResourceName) []corev1.Container {
		return []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: {}}}}}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		told   string
	}{
		"annotation":     {func(*corev1.Pod) {}, "gpu-fraction"},
		"a GPU":          {func(p *corev1.Pod) { p.Spec.Containers = limits("nvidia.com/gpu") }, ""},
		"a GPU to begin": {func(p *corev1.Pod) { p.Spec.InitContainers = limits("amd.com/gpu") }, ""},
		"something else": {func(p *corev1.Pod) { p.Spec.Containers = limits("cpu") }, "gpu-fraction"},
		"a claim": {func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("b")}}
		}, ""},
		"claims and a part": {func(p *corev1.Pod) { naming(half)(p); naming("mine")(p) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "a", UID: "u", ResourceVersion: "1", Annotations: map[string]string{"gpu-fraction": "0.5", "much": "text"}, Labels: map[string]string{"a": "b"},
			}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			test.change(p)
			got, err := trimPod(p)
			require.NoError(t, err)
			kept := got.(*corev1.Pod)
			assert.Equal(t, test.told, claimtemplate.Ignored(kept))
			assert.True(t, concerns(kept))
			assert.Equal(t, len(namedBy([]corev1.Pod{*p})), len(namedBy([]corev1.Pod{*kept})))
			kept.Spec.ResourceClaims = nil
			assert.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "a", UID: "u", ResourceVersion: "1", Annotations: map[string]string{"gpu-fraction": ""},
			}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, kept)
		})
	}
	assert.False(t, concerns(&corev1.Pod{}))
	assert.True(t, concerns(&corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{}}}}))
	labels := map[string]string{names.LabelTranslate: names.TranslateKAI, names.LabelRequestGPUResources: names.ValueTrue}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", ResourceVersion: "2", Labels: labels, DeletionTimestamp: &metav1.Time{}}}
	full := namespace.DeepCopy()
	full.Labels["another"], full.Annotations = "label", map[string]string{"much": "text"}
	trimmed, err := trimNamespace(full)
	require.NoError(t, err)
	assert.Equal(t, namespace, trimmed)
	for _, trim := range []toolscache.TransformFunc{trimPod, trimNamespace} {
		same, err := trim("a tombstone")
		require.NoError(t, err)
		assert.Equal(t, "a tombstone", same)
	}
}
