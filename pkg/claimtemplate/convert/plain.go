package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// migResource matches MIG profiles in resource names of NVIDIA's device plugin, with a dot for a plus.
var migResource = regexp.MustCompile(`^nvidia[.]com/mig-([0-9]+g[.][0-9]+gb)([.](?:me|gfx|me[.]all))?$`)

// sharedResource is the resource of a replica of a GPU.
const sharedResource = "nvidia.com/gpu.shared"

// plainRequest returns what a resource of a device plugin means: a whole GPU, or a MIG profile.
func plainRequest(name corev1.ResourceName) (vendor gpu.Vendor, profile string, is bool) {
	switch name {
	case "nvidia.com/gpu":
		return gpu.NVIDIA, "", true
	case "amd.com/gpu":
		return gpu.AMD, "", true
	}
	if found := migResource.FindStringSubmatch(string(name)); found != nil {
		return gpu.NVIDIA, found[1] + strings.Replace(found[2], ".", "+", 1), true
	}
	return "", "", false
}

// asked is a limit of a container that is not zero.
type asked struct {
	Container
	key corev1.ResourceName
}

// served returns the limits that a device plugin serves.
func served(pod *corev1.PodTemplateSpec) (all []asked) {
	for _, c := range containers(pod) {
		for _, name := range c.limits() {
			if _, _, is := plainRequest(name); is {
				if q := c.of.Resources.Limits[name]; !q.IsZero() {
					all = append(all, asked{c, name})
				}
			}
		}
	}
	return all
}

func plain(pod *corev1.PodTemplateSpec) (r Result) {
	var names []string
	byTemplate := map[string]string{}
	limits := served(pod)
	for _, a := range limits {
		vendor, profile, _ := plainRequest(a.key)
		q := a.of.Resources.Limits[a.key]
		if !whole(q, 1, claimtemplate.MostDevices) {
			r.Problems = append(r.Problems, fmt.Sprintf("container %s: %s is %s, and it must be from 1 to %d", a.Name, a.key, q.String(), claimtemplate.MostDevices))
			continue
		}
		request := claimtemplate.Request{Vendor: vendor, Count: q.Value()}
		claim := Claim{Container: a.Container, Name: a.claim(string(vendor)), Template: request.String(), Remove: []corev1.ResourceName{a.key}}
		if profile != "" {
			claim.Template, claim.Spec = migTemplate(profile, request.Count)
			claim.Name += "-" + gpu.ProfileSlug(profile)
		}
		r.Claims = append(r.Claims, claim)
		names = append(names, claim.Name)
		if !a.Init && byTemplate[claim.Template] == "" {
			byTemplate[claim.Template] = claim.Name
		}
	}
	// An init container that ends shares the devices of a container.
	for i := range r.Claims {
		c := &r.Claims[i]
		sidecar := ptr.Deref(c.of.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
		switch same := byTemplate[c.Template]; {
		case !c.Init || sidecar:
		case same != "":
			c.Name = same
		default:
			r.Notes = append(r.Notes, fmt.Sprintf("container %s: the pod holds claim %s until it ends, not only while this init container runs", c.Container.Name, c.Name))
		}
	}
	r.Problems = append(r.Problems, ownClaims(pod, names...)...)
	if len(r.Claims) > 0 {
		r.Notes = append(r.Notes, "the chart's extendedResources let the pod run unchanged; this is for claims instead")
	}
	for _, a := range limits {
		if strings.HasSuffix(string(a.key), "/gpu") {
			r.Notes = append(r.Notes, fmt.Sprintf("%s becomes a whole GPU: where a device plugin is configured to make it a replica or a partition, ask for that", a.key))
			break
		}
	}
	return r
}

// migTemplate returns the template for partitions of a MIG profile.
func migTemplate(profile string, count int64) (name string, spec resourceapi.ResourceClaimSpec) {
	name = "mig-" + gpu.ProfileSlug(profile)
	if count > 1 {
		name += fmt.Sprintf("-x%d", count)
	}
	return name, resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "gpu-mig-" + gpu.ProfileSlug(profile) + ".tranche.dev", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
		},
	}}}}
}

// stays returns notes for limits of known projects that stay unchanged.
func stays(pod *corev1.PodTemplateSpec, claims []Claim) (notes []string) {
	for _, c := range containers(pod) {
		for _, name := range c.limits() {
			if !claimtemplate.Known(string(name)) || slices.ContainsFunc(claims, func(made Claim) bool {
				return made.Init == c.Init && made.Index == c.Index && slices.Contains(made.Remove, name)
			}) {
				continue
			}
			who := "Tranche does not serve it"
			if _, _, is := plainRequest(name); is || name == sharedResource {
				who = "the chart's extendedResources can serve it"
			}
			notes = append(notes, fmt.Sprintf("container %s: %s stays as it is; %s", c.Name, name, who))
		}
	}
	return notes
}
