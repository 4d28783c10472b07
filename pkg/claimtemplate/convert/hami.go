package convert

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// selections are the annotations by which HAMi selects GPUs, by vendor.
var selections = map[string][]string{
	"nvidia": {"nvidia.com/use-gputype", "nvidia.com/nouse-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"},
	"amd":    {"amd.com/use-gputype", "amd.com/nouse-gputype", "amd.com/use-gpu-uuid", "amd.com/nouse-gpu-uuid"},
}

// hamiVendors are the vendors, in the order of the claims.
var hamiVendors = []string{"nvidia", "amd"}

const (
	// mostSelection is the maximum length of the terms that the policies write into a template's name,
	// longestAnnotation of an annotation that they read.
	mostSelection, longestAnnotation = 180, 200
	// longestChoice is longer than a valid term, but short enough for the policies to report that.
	longestChoice = 100
)

// choice is one value of an annotation that selects GPUs.
type choice struct{ key, value string }

func choices(pod *corev1.PodTemplateSpec, vendor string) (all []choice) {
	for _, key := range selections[vendor] {
		for value := range strings.SplitSeq(pod.Annotations[key], ",") {
			if value = strings.TrimSpace(value); value != "" {
				all = append(all, choice{key, value[:min(len(value), longestChoice)]})
			}
		}
	}
	return all
}

// choosing returns a pod whose only choices for a vendor's GPUs are the given ones, one for each key.
func choosing(pod *corev1.PodTemplateSpec, vendor string, only ...choice) *corev1.PodTemplateSpec {
	pod = pod.DeepCopy()
	for _, key := range selections[vendor] {
		delete(pod.Annotations, key)
	}
	for _, c := range only {
		pod.Annotations[c.key] = c.value
	}
	return pod
}

// tooLong returns the vendors whose selections do not fit into the name of a template. The policies
// reject them.
func (e evaluated) tooLong(pod *corev1.PodTemplateSpec) (vendors []string) {
	for _, vendor := range hamiVendors {
		tooLong := slices.ContainsFunc(selections[vendor], func(key string) bool { return len(pod.Annotations[key]) > longestAnnotation })
		if terms := e.strings(vendor + "Terms"); e.count(vendor) > 0 && (tooLong || len(strings.Join(terms, ".")) > mostSelection) {
			vendors = append(vendors, vendor)
		}
	}
	return vendors
}

// translateLong translates a pod with selections that are too long for the policies: it translates one
// choice after the other, and writes them into templates whose names do not contain them.
func translateLong(pod *corev1.PodTemplateSpec, vendors []string) (Result, bool) {
	short := pod
	for _, vendor := range vendors {
		all := choices(pod, vendor)
		short = choosing(short, vendor, all[:min(1, len(all))]...)
	}
	r, is := translate(claimtemplate.HAMi, short)
	for _, vendor := range vendors {
		var terms []claimtemplate.Term
		for _, c := range choices(pod, vendor) {
			one, _ := translate(claimtemplate.HAMi, choosing(short, vendor, c))
			r.Problems = lists.Union(r.Problems, one.Problems...)
			for _, claim := range one.Claims {
				if request, err := claimtemplate.Parse(claim.Template); err == nil && string(request.Vendor) == vendor {
					terms = append(terms, request.Terms...)
					break
				}
			}
		}
		for i := range r.Claims {
			if request, err := claimtemplate.Parse(r.Claims[i].Template); err == nil && string(request.Vendor) == vendor {
				if request.Terms = terms; len(terms) == 0 {
					continue
				}
				r.Claims[i].Template, r.Claims[i].Spec = shortTemplate(*request)
			}
		}
	}
	return r, is
}

// shortTemplate returns a template for any number of terms. Its name does not contain them, so the
// controller cannot create it.
func shortTemplate(request claimtemplate.Request) (name string, spec resourceapi.ResourceClaimSpec) {
	sum := sha256.Sum256([]byte(request.String()))
	spec = request.Spec()
	request.Terms = nil
	return fmt.Sprintf("selected-%s-%x", strings.TrimPrefix(request.String(), claimtemplate.Prefix), sum[:4]), spec
}
