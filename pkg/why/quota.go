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

	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// QuotaUsed is a limit of a ResourceQuota that a request would exceed.
type QuotaUsed struct {
	Quota    string `json:"quotaName"`
	Resource string `json:"resourceName"`
	Used     string `json:"used"`
	Hard     string `json:"hard"`
	Asked    string `json:"requested"`
}

// String returns the sentence for users.
func (u QuotaUsed) String() string {
	return fmt.Sprintf("the ResourceQuota %s allows %s of %s, %s is used, and %s more is requested", u.Quota, u.Hard, u.Resource, u.Used, u.Asked)
}

// quotaOfPod returns what a pod counts towards quotas.
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

// quotaOfClaim returns what a claim counts towards quotas. extended are the extended resources of
// classes, whose quotas also count claims. A request for all devices counts as the maximum of a claim.
// A request with alternatives counts the largest one of each class.
func quotaOfClaim(spec *resourceapi.ResourceClaimSpec, extended map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{"count/resourceclaims.resource.k8s.io": resource.MustParse("1")}
	for _, r := range spec.Devices.Requests {
		most := map[string]int64{}
		for _, ch := range demand.Choices(r) {
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

// exceeded returns the limits that a request would exceed. It ignores quotas with a scope, which count
// only some pods.
func exceeded(quotas []corev1.ResourceQuota, asked corev1.ResourceList) []QuotaUsed {
	var out []QuotaUsed
	for i := range quotas {
		q := &quotas[i]
		if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
			continue
		}
		for name, hard := range q.Status.Hard {
			n, used := asked[name], q.Status.Used[name]
			sum := used.DeepCopy()
			sum.Add(n)
			if n.IsZero() || sum.Cmp(hard) <= 0 {
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

// extendedResources returns the extended resources that DeviceClasses name, by class.
func extendedResources(classes []resourceapi.DeviceClass) map[string]string {
	out := map[string]string{}
	for i := range classes {
		if name := classes[i].Spec.ExtendedResourceName; name != nil {
			out[classes[i].Name] = *name
		}
	}
	return out
}

// quotaText returns a sentence for several exceeded limits.
func quotaText(all []QuotaUsed) string {
	return text.Capital(strings.Join(lists.Map(all, QuotaUsed.String), "; ")) + "."
}

// templateQuota returns what the pod's claims from templates count towards quotas.
func (in *Input) templateQuota() corev1.ResourceList {
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
