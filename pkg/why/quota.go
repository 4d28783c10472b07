package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// QuotaUsed is a limit of a ResourceQuota that has no room for what is asked for.
type QuotaUsed struct {
	Quota    string `json:"quota"`
	Resource string `json:"resource"`
	Used     string `json:"used"`
	Hard     string `json:"hard"`
	Asked    string `json:"asked"`
}

// String is the sentence for people.
func (u QuotaUsed) String() string {
	return fmt.Sprintf("the ResourceQuota %s allows %s of %s, %s is used, and %s more is asked for", u.Quota, u.Hard, u.Resource, u.Used, u.Asked)
}

// quotaOfPod is what a pod takes of quotas.
func quotaOfPod(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec}
	out := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1"), "count/pods": resource.MustParse("1")}
	for name, n := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		out["requests."+name] = n
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			out[name] = n
		}
	}
	for name, n := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		out["limits."+name] = n
	}
	return out
}

// classSuffix ends the names of the limits of DeviceClasses.
const classSuffix = ".deviceclass.resource.k8s.io/devices"

// quotaOfClaim is what a claim takes of quotas. extended are the extended resources of classes: quotas for
// them also count claims. A request of all devices counts as the most that one can get, a request with
// alternatives as the most that one of them asks for of each class.
func quotaOfClaim(spec *resourceapi.ResourceClaimSpec, extended map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{"count/resourceclaims.resource.k8s.io": resource.MustParse("1")}
	for _, r := range spec.Devices.Requests {
		most := map[string]int64{}
		for _, ch := range fit.Choices(r) {
			n := ch.Count
			if ch.All {
				n = resourceapi.AllocationResultsMaxSize
			}
			most[ch.Class] = max(most[ch.Class], n)
		}
		for class, n := range most {
			addTo(out, corev1.ResourceName(class+classSuffix), n)
			if name := extended[class]; name != "" {
				addTo(out, corev1.ResourceName("requests."+name), n)
			}
		}
	}
	return out
}

func addTo(to corev1.ResourceList, name corev1.ResourceName, n int64) {
	sum := to[name]
	sum.Add(*resource.NewQuantity(n, resource.DecimalSI))
	to[name] = sum
}

// exceeded lists the limits that have no room. Quotas with a scope are left out: they count only some
// pods.
func exceeded(quotas []corev1.ResourceQuota, asked corev1.ResourceList) []QuotaUsed {
	var out []QuotaUsed
	for i := range quotas {
		q := &quotas[i]
		if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
			continue
		}
		for name, hard := range q.Status.Hard {
			n, ok := asked[name]
			used := q.Status.Used[name]
			sum := used.DeepCopy()
			if sum.Add(n); !ok || n.IsZero() || sum.Cmp(hard) <= 0 {
				continue
			}
			out = append(out, QuotaUsed{Quota: q.Name, Resource: string(name), Used: used.String(), Hard: hard.String(), Asked: n.String()})
		}
	}
	slices.SortFunc(out, func(a, b QuotaUsed) int {
		return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// extendedResources are the extended resources of DeviceClasses, by class: the one that the class names, and that
// which every class has.
func extendedResources(classes []resourceapi.DeviceClass) map[string]string {
	out := map[string]string{}
	for i := range classes {
		if name := classes[i].Spec.ExtendedResourceName; name != nil {
			out[classes[i].Name] = *name
		}
	}
	return out
}

// quotaText says several in words, as a sentence.
func quotaText(all []QuotaUsed) string {
	var texts []string
	for _, u := range all {
		texts = append(texts, u.String())
	}
	return text.Capital(strings.Join(texts, "; ")) + "."
}

// ofTemplates is what the pod's claims from templates take of quotas.
func (in *Input) ofTemplates() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, c := range in.Pod.Spec.ResourceClaims {
		for i := range in.Templates {
			if c.ResourceClaimTemplateName == nil || in.Templates[i].Name != *c.ResourceClaimTemplateName {
				continue
			}
			for name, n := range quotaOfClaim(&in.Templates[i].Spec.Spec, extendedResources(in.Classes)) {
				n.Add(sum[name])
				sum[name] = n
			}
		}
	}
	return sum
}
