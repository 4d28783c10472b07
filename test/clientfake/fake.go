package clientfake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
)

// Client keeps objects. Reactors of the Fake in it change what happens.
type Client struct {
	clienttesting.Fake
	// Tracker has the objects.
	Tracker clienttesting.ObjectTracker
}

var _ client.Interface = (*Client)(nil)

// New returns a client that has these objects, GPUNodes, PartitionProfiles and PartitionPlans.
func New(objects ...runtime.Object) *Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	c := &Client{Tracker: Complete(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()))}
	for _, o := range objects {
		if err := c.Tracker.Add(o); err != nil {
			panic(fmt.Sprintf("clientfake: %T: %v", o, err))
		}
	}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(c.Tracker))
	c.AddWatchReactor("*", WatchReaction(c.Tracker))
	return c
}

// unlisted is a kind of objects for which informers list first: the tracker does
// not send what it has at the beginning of a watch.
type unlisted[T, L runtime.Object] struct{ client.Objects[T, L] }

// IsWatchListSemanticsUnSupported tells informers to list first.
func (unlisted[T, L]) IsWatchListSemanticsUnSupported() bool { return true }

// GPUNodes are those that are kept.
func (c *Client) GPUNodes() client.GPUNodes {
	return unlisted[*v1alpha1.GPUNode, *v1alpha1.GPUNodeList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1alpha1.GroupVersion.WithResource(client.ResourceGPUNodes), v1alpha1.GroupVersion.WithKind("GPUNode"),
		func() *v1alpha1.GPUNode { return &v1alpha1.GPUNode{} },
		func() *v1alpha1.GPUNodeList { return &v1alpha1.GPUNodeList{} },
		func(dst, src *v1alpha1.GPUNodeList) { dst.ListMeta = src.ListMeta },
		func(l *v1alpha1.GPUNodeList) []*v1alpha1.GPUNode { return gentype.ToPointerSlice(l.Items) },
		func(l *v1alpha1.GPUNodeList, items []*v1alpha1.GPUNode) { l.Items = gentype.FromPointerSlice(items) })}
}

// PartitionProfiles are those that are kept.
func (c *Client) PartitionProfiles() client.PartitionProfiles {
	return unlisted[*v1alpha1.PartitionProfile, *v1alpha1.PartitionProfileList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1alpha1.GroupVersion.WithResource(client.ResourcePartitionProfiles), v1alpha1.GroupVersion.WithKind(v1alpha1.ProfileKind),
		func() *v1alpha1.PartitionProfile { return &v1alpha1.PartitionProfile{} },
		func() *v1alpha1.PartitionProfileList { return &v1alpha1.PartitionProfileList{} },
		func(dst, src *v1alpha1.PartitionProfileList) { dst.ListMeta = src.ListMeta },
		func(l *v1alpha1.PartitionProfileList) []*v1alpha1.PartitionProfile {
			return gentype.ToPointerSlice(l.Items)
		},
		func(l *v1alpha1.PartitionProfileList, items []*v1alpha1.PartitionProfile) {
			l.Items = gentype.FromPointerSlice(items)
		})}
}

// PartitionPlans are those that are kept.
func (c *Client) PartitionPlans() client.PartitionPlans {
	return unlisted[*v1alpha1.PartitionPlan, *v1alpha1.PartitionPlanList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1alpha1.GroupVersion.WithResource(client.ResourcePartitionPlans), v1alpha1.GroupVersion.WithKind(v1alpha1.PlanKind),
		func() *v1alpha1.PartitionPlan { return &v1alpha1.PartitionPlan{} },
		func() *v1alpha1.PartitionPlanList { return &v1alpha1.PartitionPlanList{} },
		func(dst, src *v1alpha1.PartitionPlanList) { dst.ListMeta = src.ListMeta },
		func(l *v1alpha1.PartitionPlanList) []*v1alpha1.PartitionPlan { return gentype.ToPointerSlice(l.Items) },
		func(l *v1alpha1.PartitionPlanList, items []*v1alpha1.PartitionPlan) {
			l.Items = gentype.FromPointerSlice(items)
		})}
}
