package drain

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Drainer finds holders of devices and evicts pods. It is safe for concurrent use.
type Drainer struct {
	// Client reads claims from a cache with the index NodeIndex, and writes; Reader reads
	// from the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	// Count counts the results of evictions: evicted, refused, forced.
	Count func(answer string)

	refusals refusals
}

// On returns a view of a node. The node's pods are read once, when first needed.
func (d *Drainer) On(node string) *View {
	return &View{drainer: d, pods: &podReader{Reader: d.Reader, node: node}}
}

// View is a snapshot of the pods and claims of a node.
type View struct {
	drainer *Drainer
	pods    *podReader
}

// Monitoring returns the paused monitoring pods that are still on the node. Any tenant can set such
// a nodeSelector, so only pods of DaemonSets in the given namespaces count: a changed label
// ends no other pods.
func (v *View) Monitoring(ctx context.Context, paused map[string]string, namespaces []string) ([]string, error) {
	if len(paused) == 0 {
		return nil, nil
	}
	there, err := v.pods.onNode(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range there {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "DaemonSet" || !slices.Contains(namespaces, pod.Namespace) {
			continue
		}
		for key := range pod.Spec.NodeSelector {
			if _, ok := paused[key]; ok && !over(pod) {
				names = append(names, pod.Namespace+"/"+pod.Name)
				break
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
