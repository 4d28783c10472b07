package read

import (
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Kind is a kind of objects in the model.
type Kind struct {
	// Resource is as `kubectl auth can-i list` takes it: "resourceslices.resource.k8s.io".
	Resource string
	// Means is the consequence without the kind. Elsewhere is the same if only one namespace is read; it
	// is empty for cluster-scoped kinds.
	Means, Elsewhere string
	Example          runtime.Object
	// Only selects the objects that the model needs.
	Only metav1.ListOptions
	// Optional is true if not all clusters serve the kind.
	Optional bool
}

// The kinds of the model that are followed. Slices are Tranche's ResourceSlices, Pods the pods without a node.
var (
	Slices = Kind{
		Resource: "resourceslices.resource.k8s.io", Means: "GPUs are not shown", Example: &resourceapi.ResourceSlice{},
		Only: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, names.DriverName).String()},
	}
	Claims = Kind{
		Resource: "resourceclaims.resource.k8s.io", Means: "holders and free capacity are not shown", Example: &resourceapi.ResourceClaim{},
		Elsewhere: "holders in other namespaces and free capacity are not shown",
	}
	Pods = Kind{
		Resource: "pods", Means: "pods that wait for an extended resource are not shown", Example: &corev1.Pod{},
		Elsewhere: "pods of other namespaces that wait for an extended resource are not shown",
		Only:      metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName="},
	}
	Classes = Kind{
		Resource: "deviceclasses.resource.k8s.io", Means: "which class requests which GPUs, and what waits for them, is not known", Example: &resourceapi.DeviceClass{},
	}
	Rules = Kind{
		Resource: "devicetaintrules.resource.k8s.io", Means: "the taints that DeviceTaintRules add are not shown", Example: &resourceapi.DeviceTaintRule{}, Optional: true,
	}
	Nodes = Kind{
		Resource: "nodes", Means: "the states of nodes are not shown", Example: &corev1.Node{},
	}
	GPUNodes = Kind{
		Resource: "gpunodes.tranche.dev", Means: "profiles, switches and problems of GPUs are not shown", Example: &v1beta1.GPUNode{}, Optional: true,
	}
	Plans = Kind{
		Resource: "partitionplans.tranche.dev", Means: "rollouts are not shown", Example: &v1beta1.PartitionPlan{}, Optional: true,
	}
)

// Unread says why the kind could not be read. Without an error, it was read.
func (k Kind) Unread(err error) text.Unread {
	return Failed(text.Unread{Verb: "list", Resource: k.Resource, Consequence: k.Means}, err)
}

// Forbidden says that the user may not read the kind.
func (k Kind) Forbidden() text.Unread { return k.Unread(nil).Refused() }

// Failed adds the reason for which the request of an Unread failed, if it did.
func Failed(u text.Unread, err error) text.Unread {
	switch {
	case apierrors.IsForbidden(err):
		return u.Refused()
	case err != nil:
		u.Message = Reason(u.Verb, err)
	}
	return u
}

// within says what was not read if one namespace was read, or all if namespace is empty.
func (k Kind) within(namespace string) text.Unread {
	if namespace == "" {
		return k.Unread(nil)
	}
	return text.Unread{
		Verb: "list", Resource: k.Resource, Message: fmt.Sprintf("you are allowed to list %s in the namespace %s only", k.Resource, namespace), Consequence: k.Elsewhere,
	}
}

// namespaced reports whether the kind is namespaced.
func (k Kind) namespaced() bool { return k.Elsewhere != "" }

// unserved reports whether err means that the API server does not serve an optional kind.
func (k Kind) unserved(err error) bool { return k.Optional && apierrors.IsNotFound(err) }

// Reason returns the reason for which a request with a verb of RBAC, such as list, failed.
func Reason(verb string, err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		d := status.Status().Details
		if apierrors.IsForbidden(err) && d != nil {
			return text.Unread{Verb: verb, Resource: schema.GroupResource{Group: d.Group, Resource: d.Kind}.String()}.Refused().Message
		}
		return status.Status().Message
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error() // without the URL, which differs between kinds
	}
	return err.Error()
}
