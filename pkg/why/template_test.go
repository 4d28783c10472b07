package why_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/pending"
)

// Why the controller has not created the template that a pod names.
func TestTemplateThatTheControllerWouldCreate(t *testing.T) {
	const half = "tranche-fraction-500"
	labelled := func(value string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
		if value != "" {
			n.Labels = map[string]string{names.LabelTranslate: value}
		}
		return n
	}
	for name, test := range map[string]struct {
		template   string
		namespace  *corev1.Namespace
		translated []string
		event      bool
		want       why.TemplateReason
		summary    string
	}{
		"name":          {"tranche-fraction-1001", labelled("kai"), []string{"kai"}, false, why.NameNotValid, "fraction is 1001, and it must be from 1 to 1000"},
		"label":         {half, labelled(""), []string{"kai"}, false, why.NamespaceNotLabelled, "only in namespaces with the label tranche.dev/translate"},
		"off":           {half, labelled("kai"), []string{"nos"}, false, why.TranslationOff, "the chart's value translate.kai.enabled is off"},
		"all off":       {half, labelled("kai"), []string{}, true, why.TranslationOff, "translate.kai.enabled is off"},
		"too many":      {half, labelled("kai"), []string{"kai"}, true, why.TooManyAmounts, "the maximum number of templates"},
		"soon":          {half, labelled("kai"), []string{"kai"}, false, why.NotCreatedYet, "does not exist"},
		"nothing known": {half, nil, nil, false, why.NotCreatedYet, "does not exist"},
		"not known":     {half, labelled("kai"), nil, false, why.NotCreatedYet, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).TwoNodes()
			pod := w.Pod()
			w.In.Claims, pod.Status.ResourceClaimStatuses = nil, nil
			w.In.Templates = []resourceapi.ResourceClaimTemplate{}
			pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To(test.template)
			w.In.Namespace, w.In.Translated = test.namespace, test.translated
			w.In.Events = []corev1.Event{{Reason: names.EventTooManyAmounts, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "other", UID: "other"}},
				{Reason: "Other", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
			if test.event {
				w.In.Events = append(w.In.Events, corev1.Event{Reason: names.EventTooManyAmounts, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID}})
			}
			e := why.Explain(t.Context(), w.In)
			assert.Equal(t, why.ClaimMissing, e.State)
			assert.Equal(t, &why.MissingTemplate{Name: test.template, Reason: test.want}, e.MissingTemplate)
			assert.Contains(t, e.Summary, test.summary)
			assert.Len(t, e.Remedies, 1)
		})
	}
}

// What pods of other projects ask for, and names of templates that the controller creates, depend on the chart's
// translation.
func TestDependsOnTranslation(t *testing.T) {
	pod := pending.PodNamed("pod")
	there := []resourceapi.ResourceClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "tranche-gpu"}}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{ResourceClaimName: ptr.To("own")}, {ResourceClaimTemplateName: ptr.To("own")}, {ResourceClaimTemplateName: ptr.To("tranche-gpu")}}
	assert.False(t, why.DependsOnTranslation(pod, there))
	assert.False(t, why.DependsOnTranslation(pod, nil), "which templates there are is not known")
	half := corev1.PodResourceClaim{ResourceClaimTemplateName: ptr.To("tranche-fraction-500")}
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, half, half)
	assert.True(t, why.DependsOnTranslation(pod, there))
	assert.Equal(t, []string{"tranche-fraction-500"}, why.MissingTemplates(pod, there))
	for _, resource := range []string{"nvidia.com/gpumem", "amd.com/gpucores"} {
		pod = pending.PodNamed("pod")
		pod.Spec.Containers[0].Resources.Requests = resources("cpu", "1", resource, "1")
		assert.True(t, why.DependsOnTranslation(pod, there))
	}
	pod = pending.PodNamed("pod")
	assert.False(t, why.DependsOnTranslation(pod, there))
	pod.Annotations = map[string]string{"gpu-fraction": "0.5"}
	assert.True(t, why.DependsOnTranslation(pod, there))
}
