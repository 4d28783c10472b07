package live

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// packed is a ResourceSlice of ours, compressed.
type packed struct {
	metav1.ObjectMeta
	node string
	data []byte
}

var writers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// pack compresses a slice. The reflector packs what it lists before it stores it.
func pack(o any) (any, error) {
	s, ok := o.(*resourceapi.ResourceSlice)
	if !ok {
		return o, nil
	}
	p := &packed{node: ptr.Deref(s.Spec.NodeName, s.Spec.Pool.Name)}
	p.Name, p.UID, p.ResourceVersion = s.Name, s.UID, s.ResourceVersion
	slim := &resourceapi.ResourceSlice{Spec: s.Spec}
	slim.Name = s.Name
	raw, err := slim.Marshal()
	if err != nil {
		return nil, fmt.Errorf("pack ResourceSlice %s: %w", s.Name, err)
	}
	var b bytes.Buffer
	w := writers.Get().(*flate.Writer) //nolint:forcetypeassert // its New makes no other
	defer writers.Put(w)
	w.Reset(&b)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("pack ResourceSlice %s: %w", s.Name, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack ResourceSlice %s: %w", s.Name, err)
	}
	p.data = bytes.Clone(b.Bytes())
	return p, nil
}

func (p *packed) unpack() (resourceapi.ResourceSlice, error) {
	var s resourceapi.ResourceSlice
	raw, err := io.ReadAll(flate.NewReader(bytes.NewReader(p.data)))
	if err == nil {
		err = s.Unmarshal(raw)
	}
	if err != nil {
		return s, fmt.Errorf("unpack ResourceSlice %s: %w", p.Name, err)
	}
	return s, nil
}

// trimClaim keeps of a claim who holds what of ours, or what it waits for; nothing of others.
func trimClaim(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	out := &resourceapi.ResourceClaim{}
	out.Name, out.Namespace, out.UID = c.Name, c.Namespace, c.UID
	out.CreationTimestamp, out.OwnerReferences, out.DeletionTimestamp = c.CreationTimestamp, c.OwnerReferences, c.DeletionTimestamp
	if c.Status.Allocation == nil {
		out.Spec = c.Spec
		return out
	}
	allocation := &resourceapi.AllocationResult{}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == names.DriverName {
			allocation.Devices.Results = append(allocation.Devices.Results, r)
		}
	}
	if len(allocation.Devices.Results) == 0 {
		return nil
	}
	out.Status.Allocation, out.Status.ReservedFor = allocation, c.Status.ReservedFor
	return out
}

// trimNode keeps of a node what says whether it is ready, and which pods it takes.
func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{}
	out.Name, out.Labels = n.Name, n.Labels
	out.Spec.Unschedulable, out.Spec.Taints, out.Status.Allocatable = n.Spec.Unschedulable, n.Spec.Taints, n.Status.Allocatable
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

// trimPod keeps of a pod what it asks for, and what the scheduler says about it.
func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID = p.Name, p.Namespace, p.UID
	out.CreationTimestamp, out.DeletionTimestamp, out.OwnerReferences, out.Labels = p.CreationTimestamp, p.DeletionTimestamp, p.OwnerReferences, p.Labels
	from := &p.Spec
	out.Spec = corev1.PodSpec{
		ResourceClaims: from.ResourceClaims, NodeName: from.NodeName, NodeSelector: from.NodeSelector, Affinity: from.Affinity, Tolerations: from.Tolerations,
		SchedulingGates: from.SchedulingGates, SchedulerName: from.SchedulerName, TopologySpreadConstraints: from.TopologySpreadConstraints,
		InitContainers: requestsOf(from.InitContainers), Containers: requestsOf(from.Containers),
	}
	out.Status = corev1.PodStatus{
		Phase: p.Status.Phase, Conditions: p.Status.Conditions, NominatedNodeName: p.Status.NominatedNodeName,
		ResourceClaimStatuses: p.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: p.Status.ExtendedResourceClaimStatus,
	}
	return out
}

// requestsOf returns containers with nothing but the resources that they ask for.
func requestsOf(all []corev1.Container) (out []corev1.Container) {
	for _, c := range all {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	return out
}
