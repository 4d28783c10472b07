package translate

import (
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// quotaKey is a resource of nos's quotas.
const quotaKey = "nos.nebuly.com/gpu-memory"

var (
	slice     = regexp.MustCompile(`^nvidia[.]com/gpu-[0-9]+gb$`)
	sliceSize = regexp.MustCompile(`^nvidia[.]com/gpu-([1-9][0-9]{0,2})gb$`)
)

func slicesOf(c Container) (keys []string) {
	for _, name := range c.limits() {
		if slice.MatchString(string(name)) {
			keys = append(keys, string(name))
		}
	}
	return keys
}

func isNos(pod *corev1.PodTemplateSpec) bool {
	for _, c := range containers(pod) {
		if _, has := c.limit(quotaKey); has || len(slicesOf(c)) > 0 {
			return true
		}
	}
	return false
}

// nos has a claim for each slice: https://github.com/nebuly-ai/nos, pkg/gpu/slicing. It counts 1000
// MiB as a GB.
func nos(pod *corev1.PodTemplateSpec) (r Result) {
	var names []string
	for _, c := range containers(pod) {
		problem := func(is bool, text string) {
			if is {
				r.Problems = append(r.Problems, "container "+c.Name+": "+text)
			}
		}
		_, quota := c.limit(quotaKey)
		problem(quota, "nos.nebuly.com/gpu-memory is for quotas of nos: ask for nvidia.com/gpu-10gb")
		keys := slicesOf(c)
		if len(keys) == 0 {
			continue
		}
		size, one := true, true
		for _, key := range keys {
			q, _ := c.limit(key)
			size, one = size && sliceSize.MatchString(key), one && whole(q, 1, 1)
		}
		problem(len(keys) > 1, "more than one slice: ask for one that is large enough")
		problem(!size, strings.Join(keys, ", ")+": the number of GB must be from 1 to 999")
		problem(!one, strings.Join(keys, ", ")+" must be 1: ask for one slice that is large enough")
		names = append(names, c.claim("nvidia"))
		if found := sliceSize.FindStringSubmatch(keys[0]); found != nil {
			gigabytes, _ := strconv.ParseInt(found[1], 10, 64)
			request := claimtemplate.Request{Vendor: "nvidia", Memory: gigabytes * 1000, Count: 1}
			r.Claims = append(r.Claims, Claim{
				Container: c, Name: c.claim("nvidia"), Template: request.String(), Remove: []corev1.ResourceName{corev1.ResourceName(keys[0])},
			})
		}
	}
	r.Problems = append(r.Problems, ownClaims(pod, names...)...)
	if pod.Spec.HostIPC && len(r.Claims) > 0 {
		r.Notes = append(r.Notes, "hostIPC and runAsUser: 1000 were for the MPS server of nos: remove them if nothing else needs them")
	}
	return r
}
