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
			w.In.Events = []corev1.Event{{Reason: names.EventTooManyAmounts, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "other", UID: "other"}}}
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
