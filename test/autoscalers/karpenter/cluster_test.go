package karpenter

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/tranche-dev/tranche/test/autoscalers/nodes"
)

const (
	nodePool  = "gpus"
	namespace = "team"
	zone      = "zone-1"
)

// cluster is a cluster that Karpenter looks after: an API server in memory with the
// chart's DeviceClasses, NodePools, and instance types named like node models.
type cluster struct {
	t        *testing.T
	ctx      context.Context
	api      client.Client
	state    *state.Cluster
	devices  *deviceallocation.Controller
	cloud    *cloud
	overlays *nodeoverlay.Controller
	// provider is the cloud with what NodeOverlays say.
	provider cloudprovider.CloudProvider
	prov     *provisioning.Provisioner
	// schedulers give devices of each node to pods, as kube-scheduler does.
	schedulers map[string]*nodes.Scheduler
	classes    []*resourceapi.DeviceClass
	pods       int
}

// newCluster starts Karpenter with these flags, one NodePool, and instance types from cheap to
// expensive.
func newCluster(t *testing.T, models []string, flags ...string) *cluster {
	t.Helper()
	var offered []*cloudprovider.InstanceType
	for i, model := range models {
		offered = append(offered, instanceType(t, model, float64(i+1)))
	}
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: nodePool}}
	pool.Spec.Disruption = karpenter.Disruption{
		ConsolidationPolicy: karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized,
		ConsolidateAfter:    karpenter.MustParseNillableDuration("0s"),
	}
	return start(t, offered, []*karpenter.NodePool{pool}, flags...)
}

func start(t *testing.T, offered []*cloudprovider.InstanceType, pools []*karpenter.NodePool, flags ...string) *cluster {
	t.Helper()
	classes, err := nodes.Classes()
	require.NoError(t, err)
	c := &cluster{t: t, cloud: &cloud{types: offered}, classes: classes, schedulers: map[string]*nodes.Scheduler{}}
	o, set := &options.Options{}, &options.FlagSet{FlagSet: flag.NewFlagSet("karpenter", flag.ContinueOnError)}
	o.AddFlags(set)
	require.NoError(t, o.Parse(set, flags...))
	c.ctx = o.ToContext(t.Context())

	c.api = newAPI()
	for _, class := range classes {
		c.create(class.DeepCopy())
	}
	for _, pool := range pools {
		pool.UID = types.UID(pool.Name)
		pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.sh", Kind: "NodeClaim", Name: "none"}
		pool.StatusConditions().SetTrue(status.ConditionReady)
		for _, kind := range []string{karpenter.ConditionTypeValidationSucceeded, karpenter.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(kind)
		}
		c.create(pool)
	}

	store := nodeoverlay.NewInstanceTypeStore()
	c.provider = overlay.Decorate(c.cloud, c.api, store)
	c.state = state.NewCluster(clock.RealClock{}, c.api, c.provider)
	c.overlays = nodeoverlay.NewController(clock.RealClock{}, c.api, c.cloud, store, c.state)
	c.devices = deviceallocation.NewController(c.api)
	c.prov = provisioning.NewProvisioner(c.api, silent{}, c.provider, c.state, clock.RealClock{}, c.devices, virtualpods.NewVirtualPodCache(c.api))
	c.overlay()
	return c
}

// overlay creates NodeOverlays, which count with Karpenter's feature gate NodeOverlay.
func (c *cluster) overlay(all ...*v1alpha1.NodeOverlay) {
	c.t.Helper()
	for _, o := range all {
		c.create(o)
	}
	_, err := c.overlays.Reconcile(c.ctx, reconcile.Request{})
	require.NoError(c.t, err)
	for _, o := range all {
		require.NoError(c.t, c.api.Get(c.ctx, client.ObjectKeyFromObject(o), o))
		require.True(c.t, o.StatusConditions().Root().IsTrue(), "%s: %+v", o.Name, o.Status.Conditions)
	}
}

// newAPI has the indexes that Karpenter's operator makes.
func newAPI() client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, resourceapi.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	for version, objects := range map[string][]runtime.Object{
		"v1":       {&karpenter.NodePool{}, &karpenter.NodePoolList{}, &karpenter.NodeClaim{}, &karpenter.NodeClaimList{}},
		"v1alpha1": {&v1alpha1.NodeOverlay{}, &v1alpha1.NodeOverlayList{}},
	} {
		group := schema.GroupVersion{Group: apis.Group, Version: version}
		scheme.AddKnownTypes(group, objects...)
		metav1.AddToGroupVersion(scheme, group)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NodeOverlay{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		WithIndex(&karpenter.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*karpenter.NodeClaim).Status.ProviderID} }).
		WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName} }).
		Build()
}

func (c *cluster) create(o client.Object) {
	c.t.Helper()
	require.NoError(c.t, c.api.Create(c.ctx, o))
}

// slicesOf are the slices of a node of a model; none for the model "cpu".
func slicesOf(t *testing.T, model, node string) []resourceapi.ResourceSlice {
	t.Helper()
	if model == "cpu" {
		return nil
	}
	slices, err := nodes.Slices(t.Context(), model, node)
	require.NoError(t, err)
	return slices
}

// instanceType has room for many pods, and the devices of its model.
func instanceType(t *testing.T, model string, price float64) *cloudprovider.InstanceType {
	t.Helper()
	it := machine(model, price)
	// Karpenter tells devices of instance types apart by the names of their pools.
	it.DynamicResources.ResourceSliceTemplates = Templates(slicesOf(t, model, model))
	return it
}

// machine is an instance type without devices.
func machine(name string, price float64) *cloudprovider.InstanceType {
	offered := map[string]string{karpenter.CapacityTypeLabelKey: karpenter.CapacityTypeOnDemand, corev1.LabelTopologyZone: zone}
	in := func(key, value string) *requirements.Requirement {
		return requirements.NewRequirement(key, corev1.NodeSelectorOpIn, value)
	}
	return &cloudprovider.InstanceType{
		Name: name,
		Requirements: requirements.NewRequirements(
			in(corev1.LabelInstanceTypeStable, name), in(corev1.LabelArchStable, "amd64"), in(corev1.LabelOSStable, "linux"),
			in(corev1.LabelTopologyZone, zone), in(karpenter.CapacityTypeLabelKey, karpenter.CapacityTypeOnDemand),
		),
		Offerings: cloudprovider.Offerings{{Available: true, Price: price, Requirements: requirements.NewLabelRequirements(offered)}},
		Capacity:  capacity(),
		Overhead:  &cloudprovider.InstanceTypeOverhead{},
	}
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
}

// pod makes a pod with a claim for one device of a class, which waits.
func (c *cluster) pod(class string) *corev1.Pod {
	c.t.Helper()
	return c.podWith(nodes.Claim(namespace, "", class).Spec, nil)
}

// podWith makes a pod with a claim, which also requests resources.
func (c *cluster) podWith(spec resourceapi.ResourceClaimSpec, requests corev1.ResourceList) *corev1.Pod {
	c.t.Helper()
	claim := fmt.Sprint("claim-", c.pods)
	c.create(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim, UID: types.UID(claim)}, Spec: spec})
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	maps.Copy(all, requests)
	return c.waits(corev1.PodSpec{
		Containers: []corev1.Container{{
			Name:      "main",
			Resources: corev1.ResourceRequirements{Requests: all, Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
	})
}

// waits makes a pod that the scheduler found no node for.
func (c *cluster) waits(spec corev1.PodSpec) *corev1.Pod {
	c.t.Helper()
	name := fmt.Sprint("pod-", c.pods)
	c.pods++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "set", Controller: ptr.To(true)}},
		},
		Spec: spec,
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}},
		},
	}
	c.create(pod)
	return pod
}

// pending makes waiting pods.
func (c *cluster) pending(class string, count int) {
	c.t.Helper()
	for range count {
		c.pod(class)
	}
}

// node adds a node of a model on which the plugin has published its devices.
func (c *cluster) node(model, name string) {
	c.t.Helper()
	labels := map[string]string{
		karpenter.NodePoolLabelKey: nodePool, corev1.LabelInstanceTypeStable: model, corev1.LabelHostname: name,
		karpenter.CapacityTypeLabelKey: karpenter.CapacityTypeOnDemand, corev1.LabelTopologyZone: zone,
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		karpenter.NodeRegisteredLabelKey: "true", karpenter.NodeInitializedLabelKey: "true",
	}
	claim := &karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Status:     karpenter.NodeClaimStatus{ProviderID: "cloud:///" + name, NodeName: name, Capacity: capacity(), Allocatable: capacity()},
	}
	claim.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.sh", Kind: "NodeClaim", Name: "none"}
	for _, kind := range []string{
		karpenter.ConditionTypeLaunched, karpenter.ConditionTypeRegistered, karpenter.ConditionTypeInitialized, karpenter.ConditionTypeConsolidatable,
	} {
		claim.StatusConditions().SetTrue(kind)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID},
		Status: corev1.NodeStatus{
			Capacity: capacity(), Allocatable: capacity(),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	c.create(claim)
	c.create(node)
	c.state.UpdateNodeClaim(claim)
	require.NoError(c.t, c.state.UpdateNode(c.ctx, node))
	published := slicesOf(c.t, model, name)
	for i := range published {
		published[i].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
		c.create(published[i].DeepCopy())
	}
	c.schedulers[name] = nodes.NewScheduler(name, published, c.classes)
}

// runs has pods run on a node, each with one device of a class.
func (c *cluster) runs(node, class string, count int) {
	c.t.Helper()
	for range count {
		pod := c.pod(class)
		claim := &resourceapi.ResourceClaim{}
		require.NoError(c.t, c.api.Get(c.ctx, client.ObjectKey{Namespace: namespace, Name: *pod.Spec.ResourceClaims[0].ResourceClaimName}, claim))
		result, err := c.schedulers[node].Allocate(c.ctx, claim)
		require.NoError(c.t, err)
		require.NotNil(c.t, result, "node %s has no free %s", node, class)
		claim.Status.Allocation = result
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
		require.NoError(c.t, c.api.Update(c.ctx, claim))
		pod.Spec.NodeName = node
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}
		require.NoError(c.t, c.api.Update(c.ctx, pod))
		require.NoError(c.t, c.state.UpdatePod(c.ctx, pod))
	}
}

// schedule is what Karpenter would do for the pods that wait.
func (c *cluster) schedule() scheduling.Results {
	c.t.Helper()
	c.devices.Hydrate(c.ctx)
	results, err := c.prov.Schedule(c.ctx)
	require.NoError(c.t, err)
	return results
}

// removes names the nodes that Karpenter would remove because others have room for their
// pods.
func (c *cluster) removes() (names []string) {
	c.t.Helper()
	c.devices.Hydrate(c.ctx)
	queue := disruption.NewQueue(c.api, silent{}, c.state, clock.RealClock{}, c.prov)
	base := disruption.MakeConsolidation(clock.RealClock{}, c.state, c.api, c.prov, c.provider, silent{}, queue)
	single := disruption.NewSingleNodeConsolidation(base, disruption.WithValidator(accepting{}))
	candidates, err := disruption.GetCandidates(c.ctx, c.state, c.api, silent{}, clock.RealClock{}, c.provider, single.ShouldDisrupt, single.Class(), queue)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, candidates, "no node may be removed at all")
	commands, err := single.ComputeCommands(c.ctx, map[string]int{nodePool: 10}, candidates...)
	require.NoError(c.t, err)
	for _, command := range commands {
		require.Equal(c.t, disruption.DeleteDecision, command.Decision())
		for _, candidate := range command.Candidates {
			names = append(names, candidate.Name())
		}
	}
	return names
}

// cloud has instance types, and nothing else of a cloud.
type cloud struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
}

func (c *cloud) GetInstanceTypes(context.Context, *karpenter.NodePool) ([]*cloudprovider.InstanceType, error) {
	return c.types, nil
}

func (c *cloud) Name() string { return "cloud" }

// GetSupportedNodeClasses has any kind with conditions.
func (c *cloud) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&karpenter.NodeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim"}}}
}

// accepting does without the second look that Karpenter takes after some seconds.
type accepting struct{}

func (accepting) Validate(_ context.Context, command disruption.Command, _ time.Duration) (disruption.Command, error) {
	return command, nil
}

// silent drops events.
type silent struct{}

func (silent) Publish(...events.Event) {}
