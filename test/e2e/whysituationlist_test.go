package e2e

import (
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/why"
)

func limits(amounts ...string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		list := corev1.ResourceList{}
		for i := 0; i < len(amounts); i += 2 {
			list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
		}
		p.Containers[0].Resources.Limits, p.Containers[0].Resources.Requests = list, list
	}
}

// podSituations are about pods, whatever devices there are.
func podSituations() []situation {
	gate := func(p *corev1.PodSpec) {
		p.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/approval"}}
	}
	return []situation{
		{name: "running", make: asking(smallest(), on(nodeA)), state: string(why.Running)},
		{name: "no-devices", make: pod(nil, on("nowhere")), state: string(why.NoDevices), says: []string{"Tranche is not the cause"}},
		{name: "gate", make: asking(smallest(), gate), state: string(why.Gated), says: []string{"example.com/approval"}},
		{name: "node-selector", make: asking(smallest(), func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"disk": "ssd"} }),
			state: string(why.NoRoom), says: []string{"NodesExcluded", "disk=ssd"}},
	}
}

// deviceSituations are about devices and claims.
func deviceSituations() []situation {
	wrong := request(class1g10gb, "")
	wrong.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].colour == "red"`}}}
	three := func(name string) resourceapi.DeviceRequest {
		r := request(class3g40gb, "")
		r.Name = name
		return r
	}
	never := devices(three("a"), three("b"), three("c"))
	never.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
	nothing := []corev1.PodResourceClaim{fromTemplate("no-such-template")}
	return []situation{
		{name: "held", make: asking(devices(request(classWhole, "")), on(nodeB)), state: string(why.NoRoom), says: []string{`"reason": "DevicesHeld"`, "l4-0"}},
		{name: "no-such-profile", make: asking(devices(request("gpu-mig-1g-35gb.tranche.dev", ""))), state: string(why.NoRoom), says: []string{"NoSuchDevice"}},
		{name: "never", make: asking(never), state: string(why.NoRoom), says: []string{"even if all devices were free"}},
		{name: "selector-fails", make: asking(devices(wrong)), state: string(why.Unknown), says: []string{"correct the selector"}},
		{name: "tainted", make: asking(devices(request("gpu-xcp-cpx.tranche.dev", ""))), state: string(why.NoRoom), says: []string{"DevicesTainted", "kubectl delete devicetaintrule e2e-why-fan"}},
		{name: "no-class", make: asking(devices(request("gpu-nothing.tranche.dev", ""))), state: string(why.Invalid), says: []string{"there is no DeviceClass gpu-nothing.tranche.dev"}},
		{name: "no-template", make: pod(nothing), state: string(why.ClaimMissing), says: []string{"no-such-template, which does not exist"}},
		{name: "late-template", make: pod([]corev1.PodResourceClaim{fromTemplate("late")}, on(nodeA)), state: string(why.ClaimMissing), says: []string{"ResourceClaimTemplate late"}},
		{name: "quota-of-claims", make: asking(devices(request(class4g40gb, ""))), state: string(why.ClaimMissing), says: []string{`"quotaName": "no-claims"`, "FailedResourceClaimCreation"}},
		{name: "extended", make: pod(nil, limits("nvidia.com/mig-1g.10gb", "1"), on(nodeB)), state: string(why.NoRoom), says: []string{"nvidia.com/mig-1g.10gb"}},
		{name: "unknown-resource", make: pod(nil, limits("nvidia.com/mig-1g.99gb", "1")), state: string(why.Invalid), says: []string{"neither a DeviceClass nor a device plugin"}},
		{name: "claim-unused", make: func(s *suite, name string) { s.claim(name) }, asked: "resourceclaim/claim-unused", state: string(why.Unused)},
		{name: "claim-waits", make: func(s *suite, name string) {
			s.claim(name)
			pod([]corev1.PodResourceClaim{fromClaim(name)}, on("nowhere"))(s, name)
		}, asked: "resourceclaims/claim-waits", state: string(why.Waiting), says: []string{"NodesExcluded"}},
		{name: "claim-allocated", make: func(s *suite, name string) {
			s.claim(name)
			pod([]corev1.PodResourceClaim{fromClaim(name)}, on(nodeA))(s, name)
		}, asked: "resourceclaim/claim-allocated", state: string(why.Allocated), says: []string{"for claim-allocated"}},
	}
}

// template of pods that ask for a device that nobody has for them.
func podTemplate(labels map[string]string, change ...func(*corev1.PodSpec)) corev1.PodTemplateSpec {
	p := newPod("template")
	for _, f := range change {
		f(&p.Spec)
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec}
}

func job(pods ...func(*corev1.PodSpec)) func(*suite, string) {
	return func(s *suite, name string) {
		s.t.Helper()
		_, err := s.client.BatchV1().Jobs(s.namespace).Create(s.ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: podTemplate(nil, pods...)},
		}, metav1.CreateOptions{})
		require.NoError(s.t, err)
	}
}

// ownerSituations are about jobs and other owners.
func ownerSituations() []situation {
	refused := limits("nvidia.com/mig-7g.80gb", "1")
	waits := limits("nvidia.com/mig-1g.10gb", "1")
	labels := func(name string) map[string]string { return map[string]string{"app": name} }
	deployment := func(replicas int32, pods ...func(*corev1.PodSpec)) func(*suite, string) {
		return func(s *suite, name string) {
			s.t.Helper()
			always := func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }
			_, err := s.client.AppsV1().Deployments(s.namespace).Create(s.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels(name)}, Template: podTemplate(labels(name), append(pods, always)...),
			}}, metav1.CreateOptions{})
			require.NoError(s.t, err)
		}
	}
	return []situation{
		{name: "job-refused", make: job(refused), asked: "job/job-refused", state: string(why.PodsRefused), says: []string{`"quotaName": "none"`, "FailedCreate"}},
		{name: "job-waits", make: job(waits, on(nodeB)), asked: "job/job-waits", state: string(why.Waiting), says: []string{`"state": "Unscheduled"`, "1g.10gb"}},
		{name: "deployment-refused", make: deployment(1, refused), asked: "deployment/deployment-refused", state: string(why.PodsRefused), says: []string{`"quotaName": "none"`}},
		{name: "set", make: func(s *suite, name string) {
			s.t.Helper()
			always := func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }
			_, err := s.client.AppsV1().StatefulSets(s.namespace).Create(s.ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels(name)}, Template: podTemplate(labels(name), waits, on(nodeB), always),
			}}, metav1.CreateOptions{})
			require.NoError(s.t, err)
		}, asked: "sts/set", state: string(why.Waiting), says: []string{"It creates the other 2 when the previous pods are ready"}},
	}
}
