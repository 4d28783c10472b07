package e2e

import (
	"fmt"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/owner"
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
	ofKueue := func(p *corev1.PodSpec) {
		p.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	}
	zone := func(p *corev1.PodSpec) {
		p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "e2e/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"far"}}}}},
		}}}
	}
	return []situation{
		{name: "running", make: asking(smallest(), on(nodeA)), state: string(why.Running)},
		{name: "no-devices", make: pod(nil, on("nowhere")), state: string(why.NoDevices), says: []string{"not because of Tranche"}},
		{name: "gate", make: asking(smallest(), gate), state: string(why.Gated), says: []string{"example.com/approval"}},
		{name: "gate-kueue", make: func(s *suite, name string) {
			s.t.Helper()
			asking(smallest(), ofKueue)(s, name)
			s.workload(name, "v1", "Pod", string(s.pod(name).UID), "Pending", "insufficient unused quota for gpu-memory in flavor default")
		}, state: string(why.Gated), says: []string{"waits for quota", "insufficient unused quota"}},
		{name: "node-selector", make: asking(smallest(), func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"disk": "ssd"} }),
			state: string(why.NoRoom), says: []string{"NodesExcluded", "disk=ssd"}},
		{name: "node-affinity", make: asking(smallest(), zone), state: string(why.NoRoom), says: []string{"e2e/zone In far"}},
		{name: "too-large", make: asking(smallest(), limits("cpu", "10000")), state: string(why.NoRoom), says: []string{"the pod asks for 10k of cpu"}},
		{name: "other-scheduler", make: asking(smallest(), func(p *corev1.PodSpec) { p.SchedulerName = "nobody" }),
			state: string(why.SchedulerSilent), says: []string{"asks for the scheduler nobody"}},
		{name: "image-missing", make: asking(smallest(), on(nodeA), func(p *corev1.PodSpec) {
			p.Containers[0].Image, p.Containers[0].ImagePullPolicy = "e2e.invalid/nope:1", corev1.PullNever
		}),
			state: string(why.Starting), says: []string{"waits for something else"}},
		{name: "absent", state: string(why.Absent), says: []string{"There is no pod absent"}},
		{name: "terminating", make: func(s *suite, name string) {
			s.t.Helper()
			p := newPod(name)
			p.Finalizers, p.Spec.NodeSelector = []string{"e2e.example.com/keep"}, map[string]string{"disk": "ssd"}
			s.create(p)
			s.t.Cleanup(func() {
				_, _ = s.client.CoreV1().Pods(s.namespace).Patch(s.ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			})
			s.beginDelete(name)
		}, state: string(why.Terminating), says: []string{"e2e.example.com/keep"}},
	}
}

// deviceSituations are about devices and claims.
func deviceSituations() []situation {
	many := request(classWhole, "")
	many.Exactly.Count = 9
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
		{name: "held", make: asking(devices(request(classWhole, "")), on(nodeB)), state: string(why.NoRoom), says: []string{`"answer": "DevicesHeld"`, "l4-0"}},
		{name: "no-such-profile", make: asking(devices(request("gpu-mig-1g-35gb.tranche.dev", ""))), state: string(why.NoRoom), says: []string{"NoSuchDevice"}},
		{name: "too-many", make: asking(devices(many), on(nodeA)), state: string(why.NoRoom), says: []string{"it asks for 9 ×"}},
		{name: "never", make: asking(never), state: string(why.NoRoom), says: []string{"even if all devices were free"}},
		{name: "selector-fails", make: asking(devices(wrong)), state: string(why.Unknown), says: []string{"correct the selector"}},
		{name: "tainted", make: asking(devices(request("gpu-xcp-cpx.tranche.dev", ""))), state: string(why.NoRoom), says: []string{"DevicesTainted", "kubectl delete devicetaintrule e2e-why-fan"}},
		{name: "no-class", make: asking(devices(request("gpu-nothing.tranche.dev", ""))), state: string(why.Invalid), says: []string{"there is no DeviceClass gpu-nothing.tranche.dev"}},
		{name: "no-template", make: pod(nothing), state: string(why.ClaimMissing), says: []string{"no-such-template, which does not exist"}},
		{name: "late-template", make: pod([]corev1.PodResourceClaim{fromTemplate("late")}, on(nodeA)), state: string(why.ClaimMissing), says: []string{"ResourceClaimTemplate late"}},
		{name: "no-claim", make: pod([]corev1.PodResourceClaim{fromClaim("no-such-claim")}), state: string(why.ClaimMissing), says: []string{"the claim no-such-claim does not exist"}},
		{name: "quota-of-claims", make: asking(devices(request(class4g40gb, ""))), state: string(why.ClaimMissing), says: []string{`"quota": "no-claims"`, "FailedResourceClaimCreation"}},
		{name: "extended", make: pod(nil, limits("nvidia.com/mig-1g.10gb", "1"), on(nodeB)), state: string(why.NoRoom), says: []string{"nvidia.com/mig-1g.10gb"}},
		{name: "unknown-resource", make: pod(nil, limits("nvidia.com/mig-1g.99gb", "1")), state: string(why.Invalid), says: []string{"neither a DeviceClass nor a device plugin"}},
		{name: "claim-unused", make: func(s *suite, name string) { s.claim(name) }, asked: "resourceclaim/claim-unused", state: string(owner.Unused)},
		{name: "claim-waits", make: func(s *suite, name string) {
			s.claim(name)
			pod([]corev1.PodResourceClaim{fromClaim(name)}, on("nowhere"))(s, name)
		}, asked: "resourceclaims/claim-waits", state: string(owner.Waiting), says: []string{"NodesExcluded"}},
		{name: "claim-allocated", make: func(s *suite, name string) {
			s.claim(name)
			pod([]corev1.PodResourceClaim{fromClaim(name)}, on(nodeA))(s, name)
		}, asked: "resourceclaim/claim-allocated", state: string(owner.Allocated), says: []string{"for claim-allocated"}},
	}
}

// volumeSituations are about volumes.
func volumeSituations() []situation {
	using := func(class string) func(*suite, string) {
		return func(s *suite, name string) {
			s.t.Helper()
			if class != "" {
				_, err := s.client.CoreV1().PersistentVolumeClaims(s.namespace).Create(s.ctx, &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
					},
				}, metav1.CreateOptions{})
				require.NoError(s.t, err)
			}
			asking(smallest(), func(p *corev1.PodSpec) {
				p.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
			})(s, name)
		}
	}
	return []situation{
		{name: "volume-missing", make: using(""), state: string(why.VolumeNotReady), says: []string{"the PersistentVolumeClaim volume-missing does not exist"}},
		{name: "volume-unbound", make: using("e2e-why-manual"), state: string(why.VolumeNotReady), says: []string{"is not bound to a volume"}},
		{name: "volume-on-demand", make: using("e2e-why-wait"), state: string(why.RoomNow), says: []string{"volumes that may be bound"}},
		{name: "volume-elsewhere", make: using("e2e-why-manual"), state: string(why.NoRoom), says: []string{"can be reached from other nodes only: e2e/zone In far"}},
	}
}

// workload makes a Workload as Kueue does, which has no quota.
func (s *suite) workload(of, version, kind, uid, reason, message string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: %[1]s, ownerReferences: [{apiVersion: %[2]s, kind: %[3]s, name: %[1]s, uid: %[4]s}]}
spec: {queueName: gpus, active: true}
status: {conditions: [{type: QuotaReserved, status: "False", reason: %[5]s, message: %[6]q, lastTransitionTime: "2026-01-01T00:00:00Z"}]}
`, of, version, kind, uid, reason, message))
}

// template of pods that ask for a device that nobody has for them.
func podTemplate(labels map[string]string, change ...func(*corev1.PodSpec)) corev1.PodTemplateSpec {
	p := newPod("template")
	for _, f := range change {
		f(&p.Spec)
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec}
}

func job(change func(*batchv1.Job), pods ...func(*corev1.PodSpec)) func(*suite, string) *batchv1.Job {
	return func(s *suite, name string) *batchv1.Job {
		s.t.Helper()
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: podTemplate(nil, pods...)}}
		if change != nil {
			change(j)
		}
		made, err := s.client.BatchV1().Jobs(s.namespace).Create(s.ctx, j, metav1.CreateOptions{})
		require.NoError(s.t, err)
		return made
	}
}

func makes(f func(*suite, string) *batchv1.Job) func(*suite, string) {
	return func(s *suite, name string) { f(s, name) }
}

// ownerSituations are about jobs and other owners.
func ownerSituations() []situation {
	suspend := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }
	queued := func(j *batchv1.Job) { suspend(j); j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "gpus"} }
	refused := limits("nvidia.com/mig-7g.80gb", "1")
	waits := limits("nvidia.com/mig-1g.10gb", "1")
	ofKueue := func(reason, message string) func(*suite, string) {
		return func(s *suite, name string) {
			s.t.Helper()
			s.workload(name, "batch/v1", "Job", string(job(queued)(s, name).UID), reason, message)
		}
	}
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
		{name: "suspended", make: makes(job(suspend)), asked: "job/suspended", state: string(owner.Suspended), says: []string{"spec.suspend is true"}},
		{name: "kueue-pending", make: ofKueue("Pending", "insufficient unused quota for gpu-memory in flavor default"), asked: "jobs.batch/kueue-pending",
			state: string(owner.NotAdmitted), says: []string{"insufficient unused quota", "kubectl describe localqueue gpus"}},
		{name: "kueue-inadmissible", make: ofKueue("Inadmissible", "LocalQueue gpus doesn't exist"), asked: "job/kueue-inadmissible",
			state: string(owner.NotAdmitted), says: []string{"cannot be admitted by its queue"}},
		{name: "kueue-without-workload", make: makes(job(queued)), asked: "job/kueue-without-workload", state: string(owner.NotAdmitted), says: []string{"has created no Workload"}},
		{name: "job-refused", make: makes(job(nil, refused)), asked: "job/job-refused", state: string(owner.PodsRefused), says: []string{`"quota": "none"`, "FailedCreate"}},
		{name: "job-waits", make: makes(job(nil, waits, on(nodeB))), asked: "job/job-waits", state: string(owner.Waiting), says: []string{`"waits": "Unscheduled"`, "1g.10gb"}},
		{name: "job-over", make: makes(job(nil, func(p *corev1.PodSpec) { p.Containers[0].Command = []string{"true"} })), asked: "job/job-over", state: string(owner.Finished), says: []string{"it is complete"}},
		{name: "deployment-waits", make: deployment(2, waits, on(nodeB)), asked: "deploy/deployment-waits", state: string(owner.Waiting), says: []string{"wants 2 pods: 2 wait for a node"}},
		{name: "deployment-refused", make: deployment(1, refused), asked: "deployment/deployment-refused", state: string(owner.PodsRefused), says: []string{`"quota": "none"`}},
		{name: "deployment-idle", make: deployment(0), asked: "deployment.apps/deployment-idle", state: string(owner.Idle)},
		{name: "set", make: func(s *suite, name string) {
			s.t.Helper()
			always := func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }
			_, err := s.client.AppsV1().StatefulSets(s.namespace).Create(s.ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels(name)}, Template: podTemplate(labels(name), waits, on(nodeB), always),
			}}, metav1.CreateOptions{})
			require.NoError(s.t, err)
		}, asked: "sts/set", state: string(owner.Waiting), says: []string{"It creates the other 2 when the pods before are ready"}},
		{name: "jobset-suspended", make: func(s *suite, name string) { s.jobSet(name, true) }, asked: "jobset/jobset-suspended", state: string(owner.Suspended)},
		{name: "jobset-waits", make: func(s *suite, name string) {
			s.t.Helper()
			uid := s.jobSet(name, false)
			job(func(j *batchv1.Job) {
				j.Name = name + "-workers-0"
				j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: name, UID: uid, Controller: ptr.To(true)}}
			}, waits, on(nodeB))(s, name)
		}, asked: "jobsets/jobset-waits", state: string(owner.Waiting), says: []string{"wants 1 pod: 1 waits for a node"}},
	}
}

// jobSet makes a JobSet, about which nobody does anything.
func (s *suite) jobSet(name string, suspend bool) types.UID {
	s.t.Helper()
	s.apply(fmt.Sprintf("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: %s}\nspec: {suspend: %t}\n", name, suspend))
	return types.UID(s.kubectl("get", "jobset", name, "-n", s.namespace, "-o", "jsonpath={.metadata.uid}"))
}
