package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Objects is what can be done with the objects of a kind. All are of the cluster,
// none of a namespace. Errors are the API server's (k8s.io/apimachinery/pkg/api/errors);
// a cluster without the kind's definition answers NotFound.
type Objects[T, L runtime.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	// Patch changes the object, or the part of it that subresources names: "status".
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// GPUNodes are the objects of that kind.
type GPUNodes = Objects[*v1beta1.GPUNode, *v1beta1.GPUNodeList]

// PartitionProfiles are the objects of that kind.
type PartitionProfiles = Objects[*v1beta1.PartitionProfile, *v1beta1.PartitionProfileList]

// PartitionPlans are the objects of that kind.
type PartitionPlans = Objects[*v1beta1.PartitionPlan, *v1beta1.PartitionPlanList]

// Interface is a client, or what stands for one in tests.
type Interface interface {
	GPUNodes() GPUNodes
	PartitionProfiles() PartitionProfiles
	PartitionPlans() PartitionPlans
}

// The names of the kinds in paths.
const (
	ResourceGPUNodes          = "gpunodes"
	ResourcePartitionProfiles = "partitionprofiles"
	ResourcePartitionPlans    = "partitionplans"
)

// Client talks to the API server. It can be used by many at once.
type Client struct {
	gpuNodes          GPUNodes
	partitionProfiles PartitionProfiles
	partitionPlans    PartitionPlans
}

var _ Interface = (*Client)(nil)

// New returns a client for the server that config names. The config stays as it is:
// its content type, if any, is for kinds that can be written otherwise than in JSON.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme of %s: %w", v1beta1.GroupVersion, err)
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1beta1.GroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, ""
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", v1beta1.GroupVersion, err)
	}
	parameters := runtime.NewParameterCodec(scheme)
	return &Client{
		gpuNodes: gentype.NewClientWithList(ResourceGPUNodes, r, parameters, "",
			func() *v1beta1.GPUNode { return &v1beta1.GPUNode{} },
			func() *v1beta1.GPUNodeList { return &v1beta1.GPUNodeList{} }),
		partitionProfiles: gentype.NewClientWithList(ResourcePartitionProfiles, r, parameters, "",
			func() *v1beta1.PartitionProfile { return &v1beta1.PartitionProfile{} },
			func() *v1beta1.PartitionProfileList { return &v1beta1.PartitionProfileList{} }),
		partitionPlans: gentype.NewClientWithList(ResourcePartitionPlans, r, parameters, "",
			func() *v1beta1.PartitionPlan { return &v1beta1.PartitionPlan{} },
			func() *v1beta1.PartitionPlanList { return &v1beta1.PartitionPlanList{} }),
	}, nil
}

// GPUNodes are those of the cluster.
func (c *Client) GPUNodes() GPUNodes { return c.gpuNodes }

// PartitionProfiles are those of the cluster.
func (c *Client) PartitionProfiles() PartitionProfiles { return c.partitionProfiles }

// PartitionPlans are those of the cluster.
func (c *Client) PartitionPlans() PartitionPlans { return c.partitionPlans }

// ListWatch is for an informer of all objects of a kind, or of one, if a name is
// given: it asks the server for no other.
func ListWatch[T, L runtime.Object](of Objects[T, L], name string) cache.ListerWatcher {
	var selected metav1.ListOptions
	if name != "" {
		selected.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return ListWatchOf(of, of.List, of.Watch, selected)
}

// ListWatchOf is ListWatch for the objects of any kind that the selectors select. The client tells
// whether it can send them at the beginning of a watch.
func ListWatchOf[L runtime.Object](client any, list func(context.Context, metav1.ListOptions) (L, error),
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error), selected metav1.ListOptions,
) cache.ListerWatcher {
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector, o.LabelSelector = selected.FieldSelector, selected.LabelSelector
		return o
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, only(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return watches(ctx, only(o))
		},
	}, client)
}
