package defrag_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// TestRefusals: each change to a situation in which a pod could be moved forbids it.
func TestRefusals(t *testing.T) {
	pods := func(change func(*corev1.Pod)) func(*fleet, string) {
		return func(f *fleet, waiting string) {
			for name, p := range f.pods {
				if name != waiting {
					change(p)
				}
			}
		}
	}
	waiting := func(change func(*corev1.Pod)) func(*fleet, string) {
		return func(f *fleet, waiting string) { change(f.pods[waiting]) }
	}
	reserved := func(change func(*resourceapi.ResourceClaimConsumerReference)) func(*fleet, string) {
		return func(f *fleet, _ string) {
			for _, c := range f.claims {
				for i := range c.Status.ReservedFor {
					change(&c.Status.ReservedFor[i])
				}
			}
		}
	}
	mostPods := func(n string) func(*fleet, string) {
		return func(f *fleet, _ string) {
			for i := range f.in.Nodes {
				f.in.Nodes[i].Status.Allocatable[corev1.ResourcePods] = resource.MustParse(n)
			}
		}
	}
	owner := func(apiVersion, kind string) func(*fleet, string) {
		return pods(func(p *corev1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = apiVersion, kind
		})
	}
	near := []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{}, TopologyKey: corev1.LabelHostname}}
	for name, test := range map[string]struct {
		change  func(f *fleet, waiting string)
		o       defrag.Options
		reason  defrag.Reason // empty: there is a plan
		message string
	}{
		"nothing forbids it": {},
		"scheduled":          {waiting(func(p *corev1.Pod) { p.Spec.NodeName = "node-0" }), defrag.Options{}, defrag.NotWaiting, "does not wait"},
		"gated":              {waiting(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }), defrag.Options{}, defrag.NotWaiting, ""},
		"no devices":         {waiting(func(p *corev1.Pod) { p.Spec.ResourceClaims = nil }), defrag.Options{}, defrag.NoDevices, ""},
		"no claim":           {waiting(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses[0].ResourceClaimName = ptr.To("x") }), defrag.Options{}, defrag.ClaimMissing, ""},
		"no class": {func(f *fleet, w string) {
			f.claims[w].Spec.Devices.Requests[0].Exactly.DeviceClassName = "x"
		}, defrag.Options{}, defrag.ClaimMissing, "DeviceClass x"},
		"near others": {waiting(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
		}), defrag.Options{}, defrag.Unsupported, "required podAffinity"},
		"spread": {waiting(func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
		}), defrag.Options{}, defrag.Unsupported, "topologySpreadConstraints"},
		"kept away": {func(f *fleet, _ string) {
			f.pods["pod-0"].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
		}, defrag.Options{}, defrag.Unsupported, "the podAntiAffinity of pod team-a/pod-0 may keep it away"},
		"others are kept away": {func(f *fleet, _ string) {
			f.pods["pod-0"].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{}, Namespaces: []string{"other"}, TopologyKey: corev1.LabelHostname},
			}}}
		}, defrag.Options{}, "", ""},
		"kept away by a pod without a node": {func(f *fleet, _ string) {
			f.add(one, 1, func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
			})
		}, defrag.Options{}, "", ""},
		"kept away by a finished pod": {func(f *fleet, _ string) {
			finished := f.add(one, 1)
			f.pods[finished].Spec.NodeName, f.pods[finished].Status.Phase = "node-1", corev1.PodSucceeded
			f.pods[finished].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
		}, defrag.Options{}, "", ""},
		"group waits":  {waiting(inGroup), defrag.Options{}, defrag.Unsupported, "PodGroup workers"},
		"group moves":  {pods(inGroup), defrag.Options{}, defrag.NotMovable, "PodGroup workers"},
		"no hugepages": {waiting(request("hugepages-2Mi", "2Mi")), defrag.Options{}, defrag.NoResources, "other resources"},
		"room":         {func(f *fleet, _ string) { f.remove("pod-2") }, defrag.Options{}, defrag.FitsNow, "fits on node node-1"},
		"no node":      {waiting(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"x": "y"} }), defrag.Options{}, defrag.NoNode, ""},
		"tainted":      {func(f *fleet, _ string) { f.taint() }, defrag.Options{}, defrag.NoNode, ""},
		"too large":    {waiting(request(corev1.ResourceCPU, "65")), defrag.Options{}, defrag.NoResources, "CPU"},
		"forbidden by the pods": {pods(func(p *corev1.Pod) { p.Labels = map[string]string{names.LabelDefragmentation: "never"} }),
			defrag.Options{}, defrag.NotMovable, "its label tranche.dev/defragmentation=never forbids it"},
		"not allowed by the namespace": {func(f *fleet, _ string) { f.in.Namespaces = nil }, defrag.Options{}, defrag.NotMovable,
			"neither the pod nor its namespace has the label tranche.dev/defragmentation=true"},
		"allowed by the pods": {func(f *fleet, w string) {
			f.in.Namespaces = nil
			pods(func(p *corev1.Pod) {
				p.Labels = map[string]string{names.LabelDefragmentation: names.ValueTrue}
			})(f, w)
		}, defrag.Options{}, "", ""},
		"of Tranche itself": {func(f *fleet, _ string) {
			f.in.Classes[0].Annotations = map[string]string{names.AnnotationSystemNamespace: team}
		}, defrag.Options{}, defrag.NotMovable, "it is in a system namespace"},
		"waits with an extended resource": {waiting(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = nil
			request(corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+seven), "1")(p)
		}), defrag.Options{}, "", ""},
		"of a device plugin": {pods(request(corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+one), "1")), defrag.Options{}, defrag.NotMovable, "a device plugin serves its extended resources"},
		"has an extended resource": {pods(func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: *p.Status.ResourceClaimStatuses[0].ResourceClaimName}
			p.Spec.ResourceClaims = nil
			request(corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+one), "1")(p)
		}), defrag.Options{}, "", ""},
		"terminating": {pods(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), defrag.Options{}, defrag.NotMovable, "being deleted"},
		"finished":    {pods(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), defrag.Options{}, defrag.NotMovable, "it is not running"},
		"away from others": {pods(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}, TopologyKey: corev1.LabelHostname},
			}}}
		}), defrag.Options{}, defrag.NotMovable, "it has required podAntiAffinity"},
		"pod unknown":       {reserved(func(r *resourceapi.ResourceClaimConsumerReference) { r.Name = "gone" }), defrag.Options{}, defrag.NotMovable, "does not exist"},
		"another claim":     {pods(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses[0].ResourceClaimName = ptr.To("x") }), defrag.Options{}, defrag.NotMovable, "its ResourceClaim x is not allocated"},
		"claim not created": {pods(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = nil }), defrag.Options{}, defrag.NotMovable, "its ResourceClaim for gpu was not created"},
		"claim of nobody": {func(f *fleet, _ string) {
			for _, c := range f.claims {
				c.OwnerReferences = nil
			}
		}, defrag.Options{}, defrag.NotMovable, "is not the pod's alone"},
		"already allocated": {func(f *fleet, w string) { f.claims[w].Status.Allocation = &resourceapi.AllocationResult{} }, defrag.Options{}, defrag.Unsupported, "is already allocated"},
		"budget of unknown pods": {func(f *fleet, _ string) {
			b := budget(0, 1)
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "?"}}
			f.in.Budgets = []policyv1.PodDisruptionBudget{b}
		}, defrag.Options{}, defrag.Disruptions, ""},
		"budget of others": {func(f *fleet, _ string) {
			b := budget(0, 1)
			b.Spec.Selector.MatchLabels = map[string]string{"x": "y"}
			f.in.Budgets = []policyv1.PodDisruptionBudget{b}
		}, defrag.Options{}, "", ""},
		"bare":                          {pods(func(p *corev1.Pod) { p.OwnerReferences = nil }), defrag.Options{}, defrag.NotMovable, "no controller that would replace it"},
		"DaemonSet":                     {owner("apps/v1", "DaemonSet"), defrag.Options{}, defrag.NotMovable, "DaemonSet"},
		"another project's StatefulSet": {owner("example.com/v1", "StatefulSet"), defrag.Options{}, defrag.NotMovable, "StatefulSet set"},
		"StatefulSet":                   {owner("apps/v1", "StatefulSet"), defrag.Options{}, "", ""},
		"Job unknown":                   {owner("batch/v1", "Job"), defrag.Options{}, defrag.NotMovable, "could not be read"},
		"Job at its end":                {func(f *fleet, w string) { f.jobs(6); owner("batch/v1", "Job")(f, w) }, defrag.Options{}, defrag.NotMovable, "backoffLimit"},
		"Job with retries":              {func(f *fleet, w string) { f.jobs(5); owner("batch/v1", "Job")(f, w) }, defrag.Options{}, "", ""},
		"claim of several": {func(f *fleet, _ string) {
			for _, c := range f.claims {
				c.Status.ReservedFor = append(c.Status.ReservedFor, c.Status.ReservedFor...)
			}
		}, defrag.Options{}, defrag.NotMovable, "not used by exactly one pod"},
		"named claim": {pods(func(p *corev1.Pod) {
			c := &p.Spec.ResourceClaims[0]
			c.ResourceClaimTemplateName, c.ResourceClaimName = nil, p.Status.ResourceClaimStatuses[0].ResourceClaimName
		}), defrag.Options{}, defrag.NotMovable, "not created from a template"},
		"template gone": {func(f *fleet, _ string) { f.in.Templates = nil }, defrag.Options{}, defrag.NotMovable, "ResourceClaimTemplate"},
		"hostPath": {pods(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		}), defrag.Options{}, defrag.NotMovable, "is a hostPath"},
		"emptyDir": {pods(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), defrag.Options{}, "", ""},
		"local volume":   {func(f *fleet, w string) { f.localVolume(); pods(withVolume)(f, w) }, defrag.Options{}, defrag.NoPlace, "fits nowhere else"},
		"unknown volume": {pods(withVolume), defrag.Options{}, defrag.NotMovable, "volume"},
		"host ports": {pods(func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}), defrag.Options{}, defrag.NotMovable, "host ports"},
		"same priority":   {pods(priority(5)), defrag.Options{}, "", ""},
		"higher priority": {pods(priority(6)), defrag.Options{}, defrag.NotMovable, "priority 6"},
		"two budgets": {func(f *fleet, _ string) { f.in.Budgets = []policyv1.PodDisruptionBudget{budget(9, 1), budget(9, 1)} },
			defrag.Options{}, defrag.NotMovable, "several PodDisruptionBudgets"},
		"budget":              {func(f *fleet, _ string) { f.in.Budgets = []policyv1.PodDisruptionBudget{budget(0, 1)} }, defrag.Options{}, defrag.Disruptions, "team-a/budget"},
		"budget not observed": {func(f *fleet, _ string) { f.in.Budgets = []policyv1.PodDisruptionBudget{budget(1, 2)} }, defrag.Options{}, defrag.Disruptions, ""},
		"budget allows":       {func(f *fleet, _ string) { f.in.Budgets = []policyv1.PodDisruptionBudget{budget(1, 1)} }, defrag.Options{}, "", ""},
		"too many":            {func(f *fleet, _ string) { f.run("node-1", one) }, defrag.Options{MaxPods: 1}, defrag.TooMany, "2 pods would have to move"},
		"nowhere else": {pods(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Spec.NodeName} }),
			defrag.Options{}, defrag.NoPlace, "fits nowhere else"},
		"no CPU elsewhere": {pods(request(corev1.ResourceCPU, "33")), defrag.Options{}, defrag.NoPlace, ""},
		"no CPU elsewhere during a resize": {func(f *fleet, w string) {
			pods(request(corev1.ResourceCPU, "1"))(f, w)
			for _, name := range []string{"pod-0", "pod-1"} {
				f.pods[name].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32")},
				}}}
			}
		}, defrag.Options{}, defrag.NoPlace, ""},
		"takes the room itself": {func(f *fleet, w string) {
			f.in.Templates = nil
			f.remove(f.names()...)
			f.run("node-1", seven)
			waiting := f.add(seven, 1, priority(5), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"} })
			f.pods[w], f.claims[w] = f.pods[waiting], f.claims[waiting]
			delete(f.pods, waiting)
		}, defrag.Options{}, defrag.NotKept, "could take the devices"},
		"not bound yet":        {pods(func(p *corev1.Pod) { p.Spec.NodeName = "" }), defrag.Options{}, defrag.NotMovable, "it is not running"},
		"claim not needed":     {waiting(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses[0].ResourceClaimName = nil }), defrag.Options{}, defrag.NoDevices, ""},
		"claim was not needed": {pods(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses[0].ResourceClaimName = nil }), defrag.Options{}, defrag.NotMovable, "its ResourceClaim for gpu was not created"},
		"nothing but preferences": {func(f *fleet, w string) {
			for i := range f.in.Nodes {
				f.in.Nodes[i].Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectPreferNoSchedule}}
			}
			prefers := func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.ScheduleAnyway}}
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
				request("hugepages-2Mi", "0")(p)
			}
			pods(prefers)(f, w)
			waiting(prefers)(f, w)
		}, defrag.Options{}, "", ""},
		"kept away in all namespaces": {func(f *fleet, _ string) {
			f.pods["pod-0"].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{}, Namespaces: []string{"other"}, NamespaceSelector: &metav1.LabelSelector{}, TopologyKey: corev1.LabelHostname},
			}}}
		}, defrag.Options{}, defrag.Unsupported, "may keep it away"},
		"watched by an administrator": {func(f *fleet, _ string) {
			for _, pod := range []string{"pod-0", "pod-2"} {
				watch := f.add(one, 1)
				f.claims[watch].Status.Allocation = f.claims[pod].Status.Allocation.DeepCopy()
				f.claims[watch].Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
			}
		}, defrag.Options{}, "", ""},
		"claim of a group":        {reserved(func(r *resourceapi.ResourceClaimConsumerReference) { r.Resource = "podgroups" }), defrag.Options{}, defrag.NotMovable, "not used by exactly one pod"},
		"claim of an earlier pod": {reserved(func(r *resourceapi.ResourceClaimConsumerReference) { r.UID = "old" }), defrag.Options{}, defrag.NotMovable, "is not the pod's alone"},
		"volume not read":         {func(f *fleet, w string) { f.localVolume(); f.in.Storage.Volumes = nil; pods(withVolume)(f, w) }, defrag.Options{}, defrag.NotMovable, "are not known"},
		"no room for more pods":   {mostPods("2"), defrag.Options{}, defrag.NoPlace, ""},
		"room for one more pod":   {mostPods("3"), defrag.Options{}, "", ""},
		"a pool with a name of its own": {func(f *fleet, _ string) {
			for i, s := range f.slices {
				if *s.Spec.NodeName == "node-1" {
					f.slices[i] = s.DeepCopy()
					f.slices[i].Spec.Pool.Name = "other"
				}
			}
			f.claims["pod-2"].Status.Allocation.Devices.Results[0].Pool = "other"
		}, defrag.Options{}, "", ""},
		"more is held than there is": {func(f *fleet, _ string) {
			held := &f.claims["pod-0"].Status.Allocation.Devices.Results[0]
			held.Device = gpu.OfDevice(held.Device) + "-mig-7g-80gb-0"
		}, defrag.Options{}, "", ""},
		"CPU elsewhere for one of two": {func(f *fleet, w string) { f.run("node-1", one); pods(request(corev1.ResourceCPU, "17"))(f, w) }, defrag.Options{}, defrag.NoPlace, ""},
		"budget allows one of two": {func(f *fleet, _ string) {
			f.run("node-1", one)
			f.in.Budgets = []policyv1.PodDisruptionBudget{budget(1, 1)}
		}, defrag.Options{}, defrag.Disruptions, ""},
		"no time": {nil, defrag.Options{Timeout: time.Nanosecond}, defrag.OutOfTime, "did not finish in time"},
	} {
		t.Run(name, func(t *testing.T) {
			f, waiting := scattered(t)
			if test.change != nil {
				test.change(f, waiting)
			}
			plan, refusal := f.plan(waiting, test.o)
			if test.reason == "" {
				require.Nil(t, refusal)
				require.NotEmpty(t, plan.Moves)
				return
			}
			require.NotNil(t, refusal, "%+v", plan)
			assert.Equal(t, test.reason, refusal.Reason, refusal)
			assert.Contains(t, refusal.String(), test.message)
		})
	}
}

func request(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

func inGroup(p *corev1.Pod) {
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("workers")}
}

func (f *fleet) taint() {
	for i := range f.in.Nodes {
		f.in.Nodes[i].Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
	}
}

// withVolume gives a pod of node-1 a volume, and others none.
func withVolume(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Spec.NodeName},
	}}}
}

// localVolume adds a volume of each node.
func (f *fleet) localVolume() {
	for _, n := range f.in.Nodes {
		f.in.Storage.Claims = append(f.in.Storage.Claims, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: n.Name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + n.Name},
		})
		f.in.Storage.Volumes = append(f.in.Storage.Volumes, corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-" + n.Name},
			Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{n.Name}},
				}}},
			}}},
		})
	}
}

// budget is a PodDisruptionBudget for all pods that the API server has counted once.
func budget(allowed int32, generation int64) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "budget", Generation: generation},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, ObservedGeneration: 1},
	}
}
