package defrag_test

import (
	"context"
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
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

func priority(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

// scattered has two nodes with one H100 each, with a small pod on both, and a pod that waits for a
// whole GPU.
func scattered(t *testing.T, change ...func(*corev1.Pod)) (f *fleet, waiting string) {
	f = newFleet(t, 1, 1)
	f.run("node-0", one, change...)
	f.run("node-0", one, change...)
	f.run("node-1", one, change...)
	return f, f.add(seven, 1, priority(5))
}

func TestPlan(t *testing.T) {
	f, waiting := scattered(t)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	assert.Equal(t, "node-1", plan.Node, "where one pod moves, and not two")
	require.Len(t, plan.Moves, 1)
	m := plan.Moves[0]
	assert.Equal(t, "pod-2", m.Pod.Name)
	assert.Equal(t, f.pods["pod-2"].UID, m.UID)
	assert.Equal(t, f.devices("pod-2"), m.From)
	assert.Equal(t, "node-0", m.Node)
	require.Len(t, m.To, 1)
	assert.NotContains(t, append(f.devices("pod-0"), f.devices("pod-1")...), m.To[0])
	overlapping := f.planner(defrag.Options{}).Overlapping(plan)
	assert.Contains(t, overlapping, m.From[0])
	assert.NotContains(t, overlapping, plan.Devices[0])
	assert.NotContains(t, overlapping, m.To[0])
	assert.Nil(t, f.planner(defrag.Options{}).Overlapping(&defrag.Plan{Node: "node-9"}))
}

// A pod may move to another GPU of the same node.
func TestPlanOnOneNode(t *testing.T) {
	f := newFleet(t, 2)
	for range 8 {
		f.run("node-0", one)
	}
	f.remove("pod-0", "pod-1")
	plan, refusal := f.plan(f.add(seven, 1, priority(5)), defrag.Options{})
	require.Nil(t, refusal)
	require.Len(t, plan.Moves, 1)
	assert.Equal(t, "pod-7", plan.Moves[0].Pod.Name)
	assert.Equal(t, "node-0", plan.Moves[0].Node)
}

// A moved pod that stays on the node, on another GPU, still uses the CPU that it requests there.
func TestPlanOnOneNodeCountsCPU(t *testing.T) {
	f := newFleet(t, 2)
	for range 8 {
		f.run("node-0", one, request(corev1.ResourceCPU, "5"))
	}
	f.remove("pod-0", "pod-1")
	// 34 of 64 CPUs are free, 39 without the moved pod.
	_, refusal := f.plan(f.add(seven, 1, priority(5), request(corev1.ResourceCPU, "36")), defrag.Options{})
	require.NotNil(t, refusal)
	assert.Equal(t, defrag.NoPlace, refusal.Reason, refusal)
	_, refusal = f.plan(f.add(seven, 1, priority(5), request(corev1.ResourceCPU, "34")), defrag.Options{})
	require.Nil(t, refusal)
}

// A claim may be created later, from its template.
func TestPlanForTemplates(t *testing.T) {
	f, waiting := scattered(t)
	f.pods[waiting].Status.ResourceClaimStatuses = nil
	_, refusal := f.plan(waiting, defrag.Options{})
	assert.Nil(t, refusal)
	f.in.Templates = f.in.Templates[:1]
	_, refusal = f.plan(waiting, defrag.Options{})
	assert.Equal(t, defrag.ClaimMissing, refusal.Reason)
}

// Several devices need several GPUs, of which those with the fewest pods are freed.
func TestPlanForSeveralDevices(t *testing.T) {
	f := newFleet(t, 3, 1)
	for range 7 {
		f.run("node-0", one)
	}
	f.run("node-0", two)
	waiting := f.add(seven, 2, priority(5))
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	assert.Equal(t, "node-0", plan.Node)
	assert.Len(t, plan.Devices, 2)
	require.Len(t, plan.Moves, 1)
	assert.Equal(t, "pod-7", plan.Moves[0].Pod.Name)
	assert.Equal(t, "node-1", plan.Moves[0].Node)
}

// Where the room is on the last of many nodes, it is found.
func TestManyNodes(t *testing.T) {
	f := newFleet(t, append(make([]int, 0, 300), repeat(1, 300)...)...)
	for i := range f.in.Nodes {
		if f.in.Nodes[i].Name != "node-99" { // the last by name
			f.run(f.in.Nodes[i].Name, seven, func(p *corev1.Pod) { p.OwnerReferences = nil })
		}
	}
	f.run("node-99", one)
	f.in.Nodes[0].Spec.Unschedulable = false
	f.remove("pod-0") // the room for it, on node-0
	f.run("node-0", one)
	waiting := f.add(seven, 1, priority(5), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-99"} })
	plan, refusal := f.plan(waiting, defrag.Options{Timeout: time.Minute})
	require.Nil(t, refusal)
	assert.Equal(t, "node-0", plan.Moves[0].Node)
}

func repeat(n, times int) (out []int) {
	for range times {
		out = append(out, n)
	}
	return out
}

func TestPlannerNeedsEverything(t *testing.T) {
	f, _ := scattered(t)
	in := f.input()
	in.Partial = true
	_, err := defrag.New(in, defrag.Options{})
	assert.EqualError(t, err, "a plan needs the ResourceClaims, ResourceSlices, DeviceClasses and nodes of the whole cluster")
}

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
		"pod unknown": {func(f *fleet, _ string) {
			for _, c := range f.claims {
				for i := range c.Status.ReservedFor {
					c.Status.ReservedFor[i].Name = "gone"
				}
			}
		}, defrag.Options{}, defrag.NotMovable, "does not exist"},
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

// The advice is the plan, with the names of devices.
func TestAdvise(t *testing.T) {
	f, waiting := scattered(t)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	advice, err := f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	m := plan.Moves[0]
	assert.Equal(t, defrag.PodAdvice{
		Pod: v1beta1.PodReference{Namespace: team, Name: waiting, UID: f.pods[waiting].UID}, NodeName: plan.Node, Devices: defrag.Names(plan.Devices),
		Moves: []defrag.MoveAdvice{{
			PodReference: v1beta1.PodReference{Namespace: team, Name: m.Pod.Name, UID: m.UID}, FromDevices: defrag.Names(m.From), ToNodeName: m.Node, ToDevices: defrag.Names(m.To),
		}},
	}, advice)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.planner(defrag.Options{}).Advise(ctx, f.pods[waiting])
	require.ErrorIs(t, err, context.Canceled)
}

// Which pods are read because they can keep others off nodes.
func TestKeepsPodsAway(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, terms int) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: make([]corev1.PodAffinityTerm, terms),
		}}}, Status: corev1.PodStatus{Phase: phase}}
	}
	assert.True(t, defrag.KeepsPodsAway(pod("node-0", corev1.PodRunning, 1)))
	for _, p := range []*corev1.Pod{pod("", corev1.PodPending, 1), pod("node-0", corev1.PodSucceeded, 1), pod("node-0", corev1.PodRunning, 0), {Spec: corev1.PodSpec{NodeName: "node-0"}}} {
		assert.False(t, defrag.KeepsPodsAway(p))
	}
}

// What no move can help is impossible, and the reason is that of kubectl tranche why.
func TestImpossible(t *testing.T) {
	for name, test := range map[string]struct {
		class  string
		count  int64
		change func(*corev1.Pod)
		want   string
	}{
		"more GPUs than a node has": {whole, 9, func(*corev1.Pod) {}, "it asks for 9 devices at once, and the largest node has 1"},
		"more CPUs than a node has": {whole, 1, request(corev1.ResourceCPU, "500"), "the nodes with such devices do not admit the pod: the pod asks for more cpu (500) than the largest of them has (64)"},
		"no such node": {whole, 1, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"x": "y"} },
			"the nodes with such devices do not admit the pod: the pod asks for nodes with the label x=y"},
		"two large partitions of one GPU": {"gpu-mig-4g-40gb.tranche.dev", 2, func(*corev1.Pod) {}, "it asks for 2 devices at once, and the largest node has 1"},
		"another class":                   {"gpu-amd.tranche.dev", 1, func(*corev1.Pod) {}, "no device of class gpu-amd.tranche.dev; found: 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, whole NVIDIA GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := scattered(t)
			waiting := f.pods[f.add(test.class, test.count, test.change)]
			advice, err := f.planner(defrag.Options{}).Advise(t.Context(), waiting)
			require.NoError(t, err)
			assert.Equal(t, &defrag.Refusal{Reason: defrag.Impossible, Message: "No move makes room for pod team-a/" + waiting.Name + ": " + test.want + "."}, advice.Refusal)
		})
	}
	f, waiting := scattered(t, func(p *corev1.Pod) { p.OwnerReferences = nil })
	advice, err := f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	assert.Equal(t, defrag.NotMovable, advice.Refusal.Reason, "it would fit if others moved")
	f.pods[waiting].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue"}}
	advice, err = f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	assert.Equal(t, defrag.NotWaiting, advice.Refusal.Reason)
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

// A move for which the allocator takes too long is no place that does not exist: there may be a plan.
func TestAMoveThatCannotBeSearchedInTime(t *testing.T) {
	const cpx = "gpu-xcp-cpx.tranche.dev"
	f := newFleetOf(t, "MI300X", 1, 8)
	f.run("node-0", cpx)
	// The replacement asks for more pieces of one GPU than it has, which the allocator tries for each
	// choice of four others.
	devices := &f.in.Templates[0].Spec.Spec.Devices
	many := *devices.Requests[0].DeepCopy()
	many.Name, many.Exactly.Count, devices.Requests[0].Exactly.Count = "many", 9, 4
	devices.Requests = append(devices.Requests, many)
	devices.Constraints = []resourceapi.DeviceConstraint{{
		Requests: []string{"many"}, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID")),
	}}
	waiting := f.add("gpu-amd.tranche.dev", 1, priority(5), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-0"} })
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.NotNil(t, refusal, "%+v", plan)
	assert.Equal(t, defrag.OutOfTime, refusal.Reason, refusal)
}
