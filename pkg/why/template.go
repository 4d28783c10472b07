package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// TemplateReason is the reason for which the controller has not created a ResourceClaimTemplate.
type TemplateReason string

// The reasons.
const (
	// NameNotValid: the name does not encode an amount.
	NameNotValid TemplateReason = "NameNotValid"
	// NamespaceNotLabelled: the namespace has no label that enables templates.
	NamespaceNotLabelled TemplateReason = "NamespaceNotLabelled"
	// TranslationOff: the chart does not translate requests of the project in the namespace's label.
	TranslationOff TemplateReason = "TranslationOff"
	// TooManyAmounts: the namespace has the maximum number of templates.
	TooManyAmounts TemplateReason = names.EventTooManyAmounts
	// NotCreatedYet: nothing is known to prevent it.
	NotCreatedYet TemplateReason = "NotCreatedYet"
)

// MissingTemplate is a ResourceClaimTemplate that the controller would create from its name.
type MissingTemplate struct {
	Name   string         `json:"name"`
	Reason TemplateReason `json:"reason"`
}

// MissingTemplates returns the templates that a pod names and that do not exist, with names that the
// controller creates templates for.
func MissingTemplates(pod *corev1.Pod, there []resourceapi.ResourceClaimTemplate) (wanted []string) {
	if there == nil {
		return nil // they could not be read
	}
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName == nil || !strings.HasPrefix(*c.ResourceClaimTemplateName, claimtemplate.Prefix) {
			continue
		}
		name := *c.ResourceClaimTemplateName
		if !slices.ContainsFunc(there, func(t resourceapi.ResourceClaimTemplate) bool { return t.Name == name }) && !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	return wanted
}

// DependsOnTranslation reports whether Namespace and Translated are needed to explain a pod.
func DependsOnTranslation(pod *corev1.Pod, there []resourceapi.ResourceClaimTemplate) bool {
	ofOthers := slices.ContainsFunc(demand.Containers(pod), func(c corev1.Container) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(c.Resources.Requests)), func(name corev1.ResourceName) bool { return ofHAMi(string(name)) })
	})
	return ofOthers || claimtemplate.Ignored(pod) != "" || len(MissingTemplates(pod, there)) > 0
}

// missingTemplate explains why the controller did not create a template. It reports whether there is
// one that it could have created.
func (e *Explanation) missingTemplate(in *Input) bool {
	wanted := MissingTemplates(in.Pod, in.Templates)
	if len(wanted) == 0 {
		return false
	}
	name := wanted[0]
	project := ""
	if in.Namespace != nil {
		project = in.Namespace.Labels[names.LabelTranslate]
	}
	_, err := claimtemplate.Parse(name)
	tooMany := slices.ContainsFunc(in.Events, func(event corev1.Event) bool {
		return event.Reason == names.EventTooManyAmounts && event.InvolvedObject.Kind == "Pod" && event.InvolvedObject.UID == in.Pod.UID
	})
	missing := &MissingTemplate{Name: name, Reason: NotCreatedYet}
	e.MissingTemplate = missing
	switch {
	case err != nil:
		missing.Reason = NameNotValid
		e.Summary += fmt.Sprintf(" The controller does not create it: %v.", err)
		e.remedy("create the ResourceClaimTemplate, or name one that exists:", "kubectl get resourceclaimtemplates -n "+e.Namespace)
	case in.Namespace != nil && project == "":
		missing.Reason = NamespaceNotLabelled
		e.Summary += fmt.Sprintf(" The controller creates it only in namespaces with the label %s.", names.LabelTranslate)
		e.remedy("create the ResourceClaimTemplate, or ask an administrator for the label:", translationOf(e.Namespace, "PROJECT"))
	case in.Namespace != nil && in.translationIsOff(project):
		missing.Reason = TranslationOff
		e.Summary += fmt.Sprintf(" The controller does not create it: the chart's value translate.%s.enabled is off.", project)
		e.remedy(fmt.Sprintf("create the ResourceClaimTemplate, or ask an administrator to set translate.%s.enabled=true.", project), "")
	case tooMany:
		missing.Reason = TooManyAmounts
		e.Summary += " The namespace has the maximum number of templates."
		e.remedy("request an amount that other pods request, or delete pods with other amounts:", fmt.Sprintf("kubectl get resourceclaimtemplates -n %s -l %s=%s", e.Namespace, names.LabelCreatedFrom, names.CreatedFromAmount))
	default:
		e.remedy("wait: the controller creates it in seconds. If it does not, see the controller's log.", "")
	}
	return true
}
