package clientfake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1beta1"
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
	if err := v1beta1.AddToScheme(scheme); err != nil {
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
	return unlisted[*v1beta1.GPUNode, *v1beta1.GPUNodeList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1beta1.GroupVersion.WithResource(client.ResourceGPUNodes), v1beta1.GroupVersion.WithKind("GPUNode"),
		func() *v1beta1.GPUNode { return &v1beta1.GPUNode{} },
		func() *v1beta1.GPUNodeList { return &v1beta1.GPUNodeList{} },
		func(dst, src *v1beta1.GPUNodeList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.GPUNodeList) []*v1beta1.GPUNode { return gentype.ToPointerSlice(l.Items) },
		func(l *v1beta1.GPUNodeList, items []*v1beta1.GPUNode) { l.Items = gentype.FromPointerSlice(items) })}
}

// PartitionProfiles are those that are kept.
func (c *Client) PartitionProfiles() client.PartitionProfiles {
	return unlisted[*v1beta1.PartitionProfile, *v1beta1.PartitionProfileList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1beta1.GroupVersion.WithResource(client.ResourcePartitionProfiles), v1beta1.GroupVersion.WithKind(v1beta1.ProfileKind),
		func() *v1beta1.PartitionProfile { return &v1beta1.PartitionProfile{} },
		func() *v1beta1.PartitionProfileList { return &v1beta1.PartitionProfileList{} },
		func(dst, src *v1beta1.PartitionProfileList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.PartitionProfileList) []*v1beta1.PartitionProfile {
			return gentype.ToPointerSlice(l.Items)
		},
		func(l *v1beta1.PartitionProfileList, items []*v1beta1.PartitionProfile) {
			l.Items = gentype.FromPointerSlice(items)
		})}
}

// PartitionPlans are those that are kept.
func (c *Client) PartitionPlans() client.PartitionPlans {
	return unlisted[*v1beta1.PartitionPlan, *v1beta1.PartitionPlanList]{gentype.NewFakeClientWithList(&c.Fake, "",
		v1beta1.GroupVersion.WithResource(client.ResourcePartitionPlans), v1beta1.GroupVersion.WithKind(v1beta1.PlanKind),
		func() *v1beta1.PartitionPlan { return &v1beta1.PartitionPlan{} },
		func() *v1beta1.PartitionPlanList { return &v1beta1.PartitionPlanList{} },
		func(dst, src *v1beta1.PartitionPlanList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.PartitionPlanList) []*v1beta1.PartitionPlan { return gentype.ToPointerSlice(l.Items) },
		func(l *v1beta1.PartitionPlanList, items []*v1beta1.PartitionPlan) {
			l.Items = gentype.FromPointerSlice(items)
		})}
}
