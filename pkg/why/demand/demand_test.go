package demand_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/test/pending"
)

// What is wrong with the claims of a pod, whatever the nodes have.
func TestClaimsOfPods(t *testing.T) {
	deleted := &metav1.Time{Time: pending.Now}
	for name, test := range map[string]struct {
		change                    func(*pending.World)
		missing, deleted, invalid []string
	}{
		"fine":               {func(*pending.World) {}, nil, nil, nil},
		"no claim is needed": {func(w *pending.World) { w.In.Pod.Status.ResourceClaimStatuses[0].ResourceClaimName = nil }, nil, nil, nil},
		"of a removed pod":   {func(w *pending.World) { w.Claim().OwnerReferences[0].UID = "before" }, []string{"the claim pod-gpu-x7k2p belongs to another pod: ResourceClaim team-a/pod-gpu-x7k2p was not created for Pod team-a/pod (Pod is not owner)."}, nil, nil},
		"of a namespace":     {func(w *pending.World) { w.Claim().Namespace = "team-b" }, []string{"the claim pod-gpu-x7k2p does not exist in the namespace team-a."}, nil, nil},
		"named by nobody":    {func(w *pending.World) { w.In.Pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil }, []string{`the claim of "gpu" cannot be found: pod "team-a/pod", spec.resourceClaim "gpu": none of the supported fields are set.`}, nil, nil},
		"not created":        {func(w *pending.World) { w.In.Pod.Status.ResourceClaimStatuses = nil }, []string{`the claim of "gpu" has not been created from the ResourceClaimTemplate pod yet; kube-controller-manager creates it.`}, nil, nil},
		"no such template":   {func(w *pending.World) { w.In.Pod.Status.ResourceClaimStatuses, w.In.Templates[0].Name = nil, "other" }, []string{"the pod names the ResourceClaimTemplate pod, which does not exist in the namespace team-a."}, nil, nil},
		"named as a template": {func(w *pending.World) {
			w.In.Claims, w.In.Pod.Status.ResourceClaimStatuses = nil, nil
			w.In.Pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To("pod")}
		}, []string{"the claim pod does not exist in the namespace team-a. There is a ResourceClaimTemplate of this name: name it by resourceClaimTemplateName."}, nil, nil},
		"templates hidden": {func(w *pending.World) { w.In.Pod.Status.ResourceClaimStatuses, w.In.Templates = nil, nil }, []string{`the claim of "gpu" has not been created. Whether the ResourceClaimTemplate pod exists is not known.`}, nil, nil},
		"deleted":          {func(w *pending.World) { w.Claim().DeletionTimestamp = deleted }, nil, []string{"the claim pod-gpu-x7k2p is being deleted."}, []string{"the claim pod-gpu-x7k2p is being deleted."}},
		"no such class, once": {func(w *pending.World) {
			w.Claim().Spec.Devices.Requests = []resourceapi.DeviceRequest{pending.AnyOf("a", pending.Small, "x", "x")}
		}, nil, nil, []string{"there is no DeviceClass x."}},
		"classes hidden": {func(w *pending.World) { w.In.Classes = nil }, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := pending.New(t, "../../..")
			w.Pod(pending.Request("gpu", pending.Small))
			test.change(w)
			d := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims, Templates: w.In.Templates, Classes: w.In.Classes})
			assert.Equal(t, test.missing, d.Missing)
			assert.Equal(t, test.deleted, d.Deleted())
			assert.Equal(t, test.invalid, d.Invalid(w.In.Classes))
		})
	}
}

// A claim of the scheduler replaces the one that stands for extended resources, and so does a node.
func TestExtendedResources(t *testing.T) {
	const small = "nvidia.com/mig-1g.10gb"
	w := pending.New(t, "../../..")
	pod := pending.PodNamed("pod")
	pod.Spec.Containers[0].Resources.Requests = pending.Resources(small, "2", "nvidia.com/none", "1", "nvidia.com/mig-3g.40gb", "0")
	in := demand.Input{Pod: pod, Classes: w.In.Classes}
	d := demand.Of(in)
	assert.Equal(t, map[corev1.ResourceName]string{small: pending.Small}, d.Extended)
	assert.Equal(t, []demand.Ask{{Request: "main", Class: pending.Small, Text: "2 × " + pending.Small + " (" + small + ")"}}, d.Asks())
	assert.Equal(t, []string{small, "extended resource"}, []string{d.Resource(pending.Small), d.Resource(pending.Three)})

	placed := in
	placed.Pod = pod.DeepCopy()
	placed.Pod.Spec.NodeName = "node-a"
	assert.Empty(t, demand.Of(placed).Asks())

	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "pod-extended"}
	in.Claims = []resourceapi.ResourceClaim{*pending.ClaimOf("team-a", "pod-extended", pending.Request("gpu", pending.Three))}
	assert.Equal(t, []demand.Ask{{Claim: "pod-extended", Request: "gpu", Class: pending.Three, Text: "1 × " + pending.Three}}, demand.Of(in).Asks())
	in.Claims[0].Status.Allocation = &resourceapi.AllocationResult{}
	d = demand.Of(in)
	assert.Empty(t, d.Unallocated)
	assert.Len(t, d.Allocated, 1)
}

// Init containers use the devices of the others, which sidecars are among.
func TestExtendedResourcesOfInitContainers(t *testing.T) {
	w := pending.New(t, "../../..")
	pod := pending.PodNamed("pod")
	container := func(name string, requests ...string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: pending.Resources(requests...)}}
	}
	const small, three = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
	sidecar := container("sidecar", small, "1")
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{container("large", small, "5"), sidecar, container("less", small, "4", three, "1")}
	pod.Spec.Containers = []corev1.Container{container("main", small, "2", three, "1")}
	d := demand.Of(demand.Input{Pod: pod, Classes: w.In.Classes})
	assert.Equal(t, []string{
		"sidecar: 1 × gpu-mig-1g-10gb.tranche.dev (nvidia.com/mig-1g.10gb)", "main: 2 × gpu-mig-1g-10gb.tranche.dev (nvidia.com/mig-1g.10gb)",
		"init: 2 × gpu-mig-1g-10gb.tranche.dev (nvidia.com/mig-1g.10gb)", "main-2: 1 × gpu-mig-3g-40gb.tranche.dev (nvidia.com/mig-3g.40gb)",
	}, lists.Map(d.Asks(), func(a demand.Ask) string { return a.Request + ": " + a.Text }))
}

// Pods that fit on the same nodes have one key, and a difference in anything else makes another.
func TestKey(t *testing.T) {
	key := func(change func(*pending.World)) string {
		w := pending.New(t, "../../..").TwoNodes()
		w.Pod(pending.Request("gpu", pending.Small))
		change(w)
		d := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims, Templates: w.In.Templates, Classes: w.In.Classes})
		key, err := d.Key(w.In.Classes)
		require.NoError(t, err)
		return key
	}
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}}}}
	requests := func(w *pending.World) []resourceapi.DeviceRequest { return w.Claim().Spec.Devices.Requests }
	base := key(func(*pending.World) {})
	assert.Equal(t, base, key(func(w *pending.World) {
		w.In.Pod.Labels, w.In.Pod.Spec.Containers[0].Resources.Requests = map[string]string{"a": "b"}, pending.Resources("cpu", "8")
		w.In.Pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		w.Claim().Name, w.In.Pod.Status.ResourceClaimStatuses[0].ResourceClaimName = "other", new("other")
		w.Claim().Spec.Devices.Config = make([]resourceapi.DeviceClaimConfiguration, 1)
		w.In.Classes = append(w.In.Classes, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
	}))
	keys := map[string]string{base: "base"}
	for name, change := range map[string]func(*pending.World){
		"selector":    func(w *pending.World) { w.In.Pod.Spec.NodeSelector = map[string]string{"a": "b"} },
		"tolerations": func(w *pending.World) { w.In.Pod.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} },
		"affinity": func(w *pending.World) {
			w.In.Pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
		},
		"number": func(w *pending.World) { requests(w)[0].Exactly.Count = 2 },
		"class":  func(w *pending.World) { requests(w)[0].Exactly.DeviceClassName = pending.Three },
		"constraint": func(w *pending.World) {
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{"gpu"}}}
		},
		"extended": func(w *pending.World) {
			w.In.Pod.Spec.Containers[0].Resources.Requests = pending.Resources("nvidia.com/mig-1g.10gb", "1")
		},
		"of a class": func(w *pending.World) {
			for i := range w.In.Classes {
				if w.In.Classes[i].Name == pending.Small {
					w.In.Classes[i].Spec.Selectors = nil
				}
			}
		},
		"allocated": func(w *pending.World) { w.Claim().Status.Allocation = &resourceapi.AllocationResult{} },
		"elsewhere": func(w *pending.World) {
			w.Claim().Status.Allocation = &resourceapi.AllocationResult{NodeSelector: selector}
		},
	} {
		k := key(change)
		assert.Empty(t, keys[k], "%s has the same key", name)
		keys[k] = name
	}
}

func TestAsks(t *testing.T) {
	w := pending.New(t, "../../..")
	all := pending.Request("all", pending.WholeGPU)
	all.Exactly.AllocationMode, all.Exactly.AdminAccess = resourceapi.DeviceAllocationModeAll, ptr.To(true)
	choice := pending.AnyOf("choice", pending.Three, pending.Small)
	choice.FirstAvailable[1].Count, choice.FirstAvailable[1].Selectors = 2, []resourceapi.DeviceSelector{{}}
	w.Pod(all, choice, pending.Amounting(pending.MemoryShare, "memory", "20Gi"))
	asks := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims}).Asks()
	assert.Equal(t, "all gpu.tranche.dev of the node, for monitoring only (adminAccess); 1 × gpu-mig-3g-40gb.tranche.dev, or else 2 × gpu-mig-1g-10gb.tranche.dev with selectors; "+
		"1 × gpu-memory-share.tranche.dev (20Gi of memory)", demand.Asked(asks))
	for _, a := range asks {
		assert.Equal(t, "pod-gpu-x7k2p", a.Claim)
	}
}

func TestVolumes(t *testing.T) {
	pod := pending.PodNamed("pod")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "set"}}},
		{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	claim := func(name string, change func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		change(&c)
		return c
	}
	class := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	bound := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations = "pv-1", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	}
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "local"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)}, {ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
	}
	zone := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	pv := []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}}
	pv[0].Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: zone}
	for name, test := range map[string]struct {
		storage demand.Storage
		want    demand.Volume
	}{
		"hidden":           {demand.Storage{}, demand.Volume{State: demand.VolumeUnknown}},
		"of another":       {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "team-b" })}}, demand.Volume{State: demand.VolumeMissing}},
		"deleted":          {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })}}, demand.Volume{State: demand.VolumeTerminating}},
		"lost":             {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })}}, demand.Volume{State: demand.VolumeLost}},
		"bound":            {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", bound)}, Volumes: pv}, demand.Volume{State: demand.VolumeReady, PV: "pv-1", Nodes: zone, NodesKnown: true}},
		"bound anywhere":   {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", bound)}, Volumes: pv[1:]}, demand.Volume{State: demand.VolumeReady, PV: "pv-1", NodesKnown: true}},
		"bound, no volume": {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", bound)}}, demand.Volume{State: demand.VolumeReady, PV: "pv-1"}},
		"being bound": {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" })}, Classes: classes},
			demand.Volume{State: demand.VolumeUnbound}},
		"without a class": {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class(""))}}, demand.Volume{State: demand.VolumeUnbound}},
		"classes hidden":  {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class("local"))}}, demand.Volume{State: demand.VolumeUnknown, Class: "local"}},
		"on demand":       {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class("local"))}, Classes: classes}, demand.Volume{State: demand.VolumeReady, Class: "local"}},
		"at once":         {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class("fast"))}, Classes: classes}, demand.Volume{State: demand.VolumeUnbound, Class: "fast"}},
		"by default":      {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class("plain"))}, Classes: classes}, demand.Volume{State: demand.VolumeUnbound, Class: "plain"}},
		"no such class":   {demand.Storage{Claims: []corev1.PersistentVolumeClaim{claim("set", class("x"))}, Classes: classes}, demand.Volume{State: demand.VolumeUnbound, Class: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := demand.Volumes(pod, test.storage)
			test.want.Name, test.want.Claim = "data", "set"
			own := demand.Volume{Name: "own", Claim: "pod-own", State: demand.VolumeMissing}
			if test.storage.Claims == nil {
				own.State = demand.VolumeUnknown
			}
			assert.Equal(t, []demand.Volume{test.want, own}, got)
		})
	}

	foreign := claim("pod-own", bound)
	owned := *foreign.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}}
	for state, c := range map[demand.VolumeState]corev1.PersistentVolumeClaim{demand.VolumeMissing: foreign, demand.VolumeReady: owned} {
		assert.Equal(t, state, demand.Volumes(pod, demand.Storage{Claims: []corev1.PersistentVolumeClaim{c}})[1].State)
	}
}

func TestOthers(t *testing.T) {
	term := []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}}
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		want   []string
	}{
		"nothing": {func(*corev1.PodSpec) {}, nil},
		"only wishes": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
		}, nil},
		"separation": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		}, []string{"separation from other pods (podAntiAffinity)"}},
		"proximity": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		}, []string{"proximity to other pods (podAffinity)"}},
		"spread": {func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}, {TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway}}
		}, []string{"an even spread (topologySpreadConstraints over zone)"}},
		"volumes": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, {Name: "b", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}, {Name: "c"}}
		}, []string{"volumes that may be bound to other nodes or zones (a, b)"}},
		"a port": {func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, []string{"ports of the host"}},
		"port, no host": {func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}} }, nil},
		"host network": {func(s *corev1.PodSpec) {
			s.HostNetwork, s.Containers[0].Ports = true, []corev1.ContainerPort{{ContainerPort: 80}}
			s.Containers[0].Resources.Requests = pending.Resources("cpu", "1")
			s.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}, []string{"volumes that may be bound to other nodes or zones (a)", "ports of the host", "cpu"}},
		"resources": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = pending.Resources("memory", "1Gi", "cpu", "1", "example.com/nic", "1", "ephemeral-storage", "0")
			s.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: pending.Resources("cpu", "2")}}}
		}, []string{"cpu, memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pending.PodNamed("pod")
			test.change(&pod.Spec)
			assert.Equal(t, test.want, demand.Others(pod))
		})
	}
}
