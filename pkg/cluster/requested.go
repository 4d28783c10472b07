package cluster

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
)

// gpuResources are GPU memory and compute of nodes.
var gpuResources = []corev1.ResourceName{names.ResourceGPUMemory, names.ResourceGPUCompute}

// RequestsOf returns the GPU memory and compute that a pod requests of its node, nil for none.
func RequestsOf(pod *corev1.Pod) corev1.ResourceList {
	var out corev1.ResourceList
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if slices.Contains(gpuResources, name) && !q.IsZero() {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// Requested is how much of a node's GPU memory and compute its pods request.
type Requested struct {
	// Sum is what the pods request, Of what the node has.
	Sum, Of corev1.ResourceList
}

// RequestedOn sums up the requests of pods for a node. As for the scheduler, pods that have ended
// request nothing. Pods may be on any node.
func RequestedOn(node *corev1.Node, pods []corev1.Pod) Requested {
	r := Requested{Sum: corev1.ResourceList{}, Of: corev1.ResourceList{}}
	for _, name := range gpuResources {
		if q, has := node.Status.Allocatable[name]; has {
			r.Of[name] = q
		}
	}
	for i := range pods {
		ended := pods[i].Status.Phase == corev1.PodSucceeded || pods[i].Status.Phase == corev1.PodFailed
		if pods[i].Spec.NodeName != node.Name || ended {
			continue
		}
		for name, q := range RequestsOf(&pods[i]) {
			sum := r.Sum[name]
			sum.Add(q)
			r.Sum[name] = sum
		}
	}
	return r
}

// Room reports whether more requests fit.
func (r Requested) Room(more corev1.ResourceList) bool {
	for name, q := range more {
		q.Add(r.Sum[name])
		if q.Cmp(r.Of[name]) > 0 {
			return false
		}
	}
	return true
}

// String describes the amounts: "480 of 640 GiB of GPU memory and 6 of 8 GPUs". It leaves out what
// nobody requests, and what the node does not have.
func (r Requested) String() string {
	var parts []string
	for _, name := range gpuResources {
		sum, of := r.Sum[name], r.Of[name]
		if _, has := r.Of[name]; !has || sum.IsZero() {
			continue
		}
		total := amountText(name, of)
		_, unit, _ := strings.Cut(total, " ")
		part, what, _ := strings.Cut(amountText(name, sum), " ")
		if name == names.ResourceGPUMemory && what != unit {
			part = text.Bytes(sum.Value())
		}
		parts = append(parts, part+" of "+total)
	}
	return strings.Join(parts, " and ")
}

// AmountsText describes GPU memory and compute: "9.5 GiB of GPU memory and 0.14 GPUs".
func AmountsText(all corev1.ResourceList) string {
	var parts []string
	for _, name := range gpuResources {
		if q, has := all[name]; has {
			parts = append(parts, amountText(name, q))
		}
	}
	return strings.Join(parts, " and ")
}

func amountText(name corev1.ResourceName, q resource.Quantity) string {
	if name == names.ResourceGPUMemory {
		return text.Bytes(q.Value()) + " of GPU memory"
	}
	gpus := strconv.FormatFloat(float64(q.Value())/1000, 'f', -1, 64) + " GPU"
	if q.Value() != 1000 {
		gpus += "s"
	}
	return gpus
}
