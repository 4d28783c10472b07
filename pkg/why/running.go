package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// running explains what a pod that runs lacks of what it asks for.
func (e *Explanation) running(in *Input, d *demand.Demand) {
	e.State = Running
	e.Summary = fmt.Sprintf("%s runs on %s.", e.who(), in.Pod.Spec.NodeName)
	var problems []string
	for _, s := range slices.Concat(in.Pod.Status.InitContainerStatuses, in.Pod.Status.ContainerStatuses) {
		problems = append(problems, e.container(in, s)...)
	}
	for _, h := range e.Holds {
		if len(h.Problems) > 0 {
			problems = append(problems, "its "+h.Label+" has a problem")
		}
	}
	problems = append(problems, e.configuration(d)...)
	about := involved(in, &demand.Demand{})
	ours := lists.Filter(warnings(in, about, names.EventAnnotationIgnored), func(q Quote) bool {
		return q.Component == names.DriverName || q.Component == names.ControllerName
	})
	for _, q := range ours {
		problems = append(problems, "Tranche warns: "+q.Reason)
	}
	if len(problems) > 0 {
		e.Summary += " But " + strings.Join(problems, "; ") + "."
		e.Quotes = append(e.Quotes, warnings(in, about)...)
	}
}

// restarts is the time after a restart for which it counts: so long the kubelet does, too.
const restarts = 10 * time.Minute

// container returns the problems of a container.
func (e *Explanation) container(in *Input, s corev1.ContainerStatus) (out []string) {
	for _, r := range s.AllocatedResourcesStatus {
		for _, h := range r.Resources {
			if h.Health == corev1.ResourceHealthStatusUnhealthy {
				out = append(out, fmt.Sprintf("the device that container %s has from %s is unhealthy", s.Name, strings.TrimPrefix(string(r.Name), "claim:")))
			}
		}
	}
	ended := s.State.Terminated
	if r := s.State.Running; r != nil && in.Now.Sub(r.StartedAt.Time) > restarts {
		return out // it has recovered
	}
	if w := s.State.Waiting; w != nil {
		out = append(out, strings.TrimSpace(fmt.Sprintf("container %s waits: %s %s", s.Name, w.Reason, w.Message)))
		if slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}, w.Reason) {
			e.remedy("correct the image of the container, or the secret with which it is pulled.", "")
		}
	}
	if ended == nil {
		ended = s.LastTerminationState.Terminated
	}
	if ended == nil || ended.ExitCode == 0 {
		return out
	}
	previous := ""
	if s.RestartCount > 0 {
		previous = " --previous"
	}
	e.remedy("see why the program ends:", fmt.Sprintf("kubectl logs %s -n %s -c %s%s", e.Pod, e.Namespace, s.Name, previous))
	return append(out, fmt.Sprintf("container %s ended with exit code %d (%s), restarts: %d", s.Name, ended.ExitCode, ended.Reason, s.RestartCount))
}

// configuration returns the configuration in the pod's claims that is for drivers that serve none of them.
func (e *Explanation) configuration(d *demand.Demand) (out []string) {
	for _, claim := range d.Allocated {
		var drivers []string
		for _, r := range claim.Status.Allocation.Devices.Results {
			drivers = lists.Union(drivers, r.Driver)
		}
		for _, c := range claim.Spec.Devices.Config {
			if c.Opaque != nil && !slices.Contains(drivers, c.Opaque.Driver) {
				out = append(out, fmt.Sprintf("the configuration for %s in claim %s has no effect: the devices are those of %s", c.Opaque.Driver, claim.Name, strings.Join(drivers, ", ")))
				e.remedy("remove the configuration, or write it for the driver of the devices. To translate that of another driver:", "kubectl tranche convert -f FILE")
			}
		}
	}
	return out
}

// withoutDevices adds why the containers of a pod see no device although the pod asks for some.
func (e *Explanation) withoutDevices(in *Input, d *demand.Demand) {
	pod := in.Pod
	for _, c := range pod.Spec.ResourceClaims {
		names := func(container corev1.Container) bool {
			return slices.ContainsFunc(container.Resources.Claims, func(named corev1.ResourceClaim) bool { return named.Name == c.Name })
		}
		if !slices.ContainsFunc(demand.Containers(pod), names) {
			e.Summary += fmt.Sprintf(" No container names the claim %s, so none sees its devices.", c.Name)
			e.remedy(fmt.Sprintf("create the pod again with resources: {claims: [{name: %s}]} in the container that uses the devices.", c.Name), "")
		}
		e.withoutRequest(pod, &c, d)
	}
	if key := claimtemplate.Ignored(pod); key != "" {
		e.Summary += fmt.Sprintf(" The annotation %s gives it no GPU.", key)
		e.remedyTranslation(in, names.TranslateKAI)
	}
}

// withoutRequest adds which containers name a request that their claim does not have. The kubelet then gives
// them no device, and no error.
func (e *Explanation) withoutRequest(pod *corev1.Pod, c *corev1.PodResourceClaim, d *demand.Demand) {
	name, _, err := resourceclaim.Name(pod, c)
	if err != nil || name == nil {
		return
	}
	for _, claim := range slices.Concat(d.Allocated, d.Unallocated) {
		if claim.Name != *name {
			continue
		}
		there := lists.Map(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) string { return r.Name })
		for _, container := range demand.Containers(pod) {
			for _, named := range container.Resources.Claims {
				if named.Name == c.Name && named.Request != "" && !slices.Contains(there, named.Request) {
					e.Summary += fmt.Sprintf(" Container %s names the request %s of the claim %s, which has %s, so it sees no device of it.",
						container.Name, named.Request, c.Name, strings.Join(there, ", "))
					e.remedy("create the pod again with a request that the claim has, or with none for all devices of the claim.", "")
				}
			}
		}
	}
}

// remedyTranslation says how pods of another project get their GPUs unchanged.
func (e *Explanation) remedyTranslation(in *Input, project string) {
	if in.translationIsOff(project) {
		e.remedy(fmt.Sprintf("use a claim; or have an administrator set the chart's value translate.%s.enabled=true and label the namespace, and create the pod again:", project), translationOf(e.Namespace, project))
		return
	}
	e.remedy("use a claim; or have an administrator label the namespace, unless it has the label, and create the pod again:", translationOf(e.Namespace, project))
}

// translationIsOff reports whether the chart is known not to translate requests of a project.
func (in *Input) translationIsOff(project string) bool {
	return in.Translated != nil && !slices.Contains(in.Translated, project)
}

// translationOf is the command that has the requests of a project translated in a namespace.
func translationOf(namespace, project string) string {
	return "kubectl label namespace " + namespace + " " + names.LabelTranslate + "=" + project
}
