package read

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Requests are pods that have a node, and have not ended. They are not followed, because they are many.
var Requests = Kind{
	Resource: "pods", Means: "how much of the node's GPU memory and compute pods request is not shown", Example: &corev1.Pod{},
	Only: metav1.ListOptions{FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"},
}

// Requested reads how much of a node's GPU memory and compute its pods request. Nothing is unread if
// the node does not exist, or has neither.
func (c Clients) Requested(ctx context.Context, node string) (cluster.Requested, text.Unread) {
	found, err := List[corev1.Node](ctx, c, "", metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()})
	if err != nil {
		return cluster.Requested{}, Failed(text.Unread{Verb: "list", Resource: Nodes.Resource, Consequence: Requests.Means}, err)
	}
	if len(found) == 0 || len(cluster.RequestedOn(&found[0], nil).Of) == 0 {
		return cluster.Requested{}, text.Unread{}
	}
	pods, err := List[corev1.Pod](ctx, c, "", metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return cluster.Requested{}, Requests.Unread(err)
	}
	return cluster.RequestedOn(&found[0], pods), text.Unread{}
}
