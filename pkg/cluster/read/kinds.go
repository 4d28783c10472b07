package read

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Kind is a kind of objects in the model.
type Kind struct {
	// Name is the name to show: "ResourceSlices".
	Name string
	// Means is a sentence about what is missing without the kind. Elsewhere is the same if only one
	// namespace is read; it is empty for cluster-scoped kinds.
	Means, Elsewhere string
	Example          runtime.Object
	// Only selects the objects that the model needs.
	Only metav1.ListOptions
	// Optional is true if not all clusters serve the kind.
	Optional bool
}

// The kinds of the model. Slices are Tranche's ResourceSlices, Pods the pods without a node.
var (
	Slices = Kind{
		Name: "ResourceSlices", Means: "GPUs are not shown.", Example: &resourceapi.ResourceSlice{},
		Only: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, names.DriverName).String()},
	}
	Claims = Kind{
		Name: "ResourceClaims", Means: "Holders and free capacity are not shown.", Example: &resourceapi.ResourceClaim{},
		Elsewhere: "Holders in other namespaces and free capacity are not shown.",
	}
	Pods = Kind{
		Name: "Pods", Means: "Pods that wait for an extended resource are not shown.", Example: &corev1.Pod{},
		Elsewhere: "Pods of other namespaces that wait for an extended resource are not shown.",
		Only:      metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName="},
	}
	Classes = Kind{
		Name: "DeviceClasses", Means: "Which class requests which GPUs, and what waits for them, is unknown.", Example: &resourceapi.DeviceClass{},
	}
	Rules = Kind{
		Name: "DeviceTaintRules", Means: "The taints that they add are not shown.", Example: &resourceapi.DeviceTaintRule{}, Optional: true,
	}
	Nodes = Kind{
		Name: "Nodes", Means: "The states of nodes are not shown.", Example: &corev1.Node{},
	}
	GPUNodes = Kind{
		Name: "GPUNodes", Means: "Profiles, switches and problems of GPUs are not shown.", Example: &v1beta1.GPUNode{}, Optional: true,
	}
	Plans = Kind{
		Name: "PartitionPlans", Means: "Rollouts are not shown.", Example: &v1beta1.PartitionPlan{}, Optional: true,
	}
)

// Gap describes a kind of objects that was not read, or only in part.
type Gap struct {
	// What is the kind, Reason the reason, and Means a sentence about the consequences.
	What, Reason, Means string
}

// Notes describes gaps in sentences, one for all gaps with the same reason.
func Notes(gaps []Gap) []string {
	var kinds, means [][]string
	var reasons []string
	for _, g := range gaps {
		i := slices.Index(reasons, g.Reason)
		if i < 0 {
			i = len(reasons)
			reasons, kinds, means = append(reasons, g.Reason), append(kinds, nil), append(means, nil)
		}
		kinds[i] = append(kinds[i], g.What)
		if !slices.Contains(means[i], g.Means) {
			means[i] = append(means[i], g.Means)
		}
	}
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s: %s. %s", strings.Join(kinds[i], ", "), strings.TrimSuffix(reason, "."), strings.Join(means[i], " "))
	}
	return reasons
}

// gap returns the gap of a kind whose list failed.
func (k Kind) gap(err error) Gap { return Gap{What: k.Name, Reason: Reason(err), Means: k.Means} }

// within returns the gap of a kind that was read in one namespace, or in all if namespace is empty.
func (k Kind) within(namespace string) Gap {
	if namespace == "" {
		return Gap{What: k.Name}
	}
	return Gap{What: k.Name, Reason: fmt.Sprintf("you are allowed to list them in the namespace %s only", namespace), Means: k.Elsewhere}
}

// namespaced reports whether the kind is namespaced.
func (k Kind) namespaced() bool { return k.Elsewhere != "" }

// unserved reports whether err means that the API server does not serve an optional kind.
func (k Kind) unserved(err error) bool { return k.Optional && apierrors.IsNotFound(err) }

// Reason returns the reason for which objects could not be read.
func Reason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		d := status.Status().Details
		if apierrors.IsForbidden(err) && d != nil {
			return "you are not allowed to list " + schema.GroupResource{Group: d.Group, Resource: d.Kind}.String()
		}
		return status.Status().Message
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error() // without the URL, which differs between kinds
	}
	return err.Error()
}
