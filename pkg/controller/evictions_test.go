package controller

import (
	"context"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// dryRun reports whether an eviction is one. Both places must say so, as the API server
// wants it.
func dryRun(opts []client.SubResourceCreateOption, body client.Object) bool {
	o := &client.SubResourceCreateOptions{}
	o.ApplyOptions(opts)
	inQuery := slices.Contains(o.DryRun, metav1.DryRunAll)
	eviction, ok := body.(*policyv1.Eviction)
	if !ok || inQuery != slices.Contains(eviction.DeleteOptions.DryRun, metav1.DryRunAll) {
		panic("the options of an eviction contradict each other")
	}
	return inQuery
}

// try answers the dry run of an eviction.
func (w *world) try(ctx context.Context, o client.Object) error {
	var pod corev1.Pod
	if err := w.api.Get(ctx, client.ObjectKeyFromObject(o), &pod); err != nil {
		return err
	}
	if pod.UID != o.GetUID() {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, assert.AnError)
	}
	if w.tryEvict != nil {
		return w.tryEvict(client.ObjectKeyFromObject(o))
	}
	return nil
}

// blocks has the API server refuse evictions, dry ones too; nil: it allows them.
func (w *world) blocks(refuse func(types.NamespacedName) error) { w.evict, w.tryEvict = refuse, refuse }

// devicesOf are the devices that a pod's claim has, by GPU.
func (w *world) devicesOf(pod types.NamespacedName) (node string, devices map[string]string) {
	devices = map[string]string{}
	var claim resourceapi.ResourceClaim
	if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-gpu"}, &claim); err != nil {
		return "", nil
	}
	for name, n := range w.nodes {
		for _, gpuID := range n.gpus {
			for _, r := range claim.Status.Allocation.Devices.Results {
				if r.Driver == names.DriverName && r.Pool == names.PoolName(name) && gpu.OfDevice(r.Device) == gpuID {
					node, devices[r.Device] = name, gpuID
				}
			}
		}
	}
	return node, devices
}

// evicted checks that a pod that is asked to leave is one that the last plan of its
// node's plugin names, or that has lost its device.
func (w *world) evicted(pod types.NamespacedName) {
	name, devices := w.devicesOf(pod)
	n := w.nodes[name]
	if n == nil || n.quick {
		return
	}
	var g v1beta1.GPUNode
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &g); err != nil {
		return
	}
	if g.Status.State == v1beta1.Verifying || g.Status.Switch != nil && g.Status.Switch.RebootRequired {
		return
	}
	assert.Equal(w.t, v1beta1.Draining, g.Status.State, "pod %s is evicted", pod)
	for device, gpuID := range devices {
		if n.names(gpuID, device) {
			return
		}
	}
	assert.Fail(w.t, "a pod is evicted that the last plan does not name", "%s, %v; the plan: %v", pod, devices, n.plan)
}

// names reports whether the last plan has the holder of a device leave.
func (n *fakeNode) names(gpuID, device string) bool {
	return slices.ContainsFunc(n.plan, func(c v1beta1.GPUChange) bool { return c.GPU == gpuID && !slices.Contains(c.KeptDevices, device) })
}

// drains checks, when a drain begins, that all who have to leave can.
func (w *world) drains(g *v1beta1.GPUNode) {
	sw := g.Status.Switch
	if g.Status.State != v1beta1.Draining || sw == nil || sw.Policy.AfterDeadline == v1beta1.Force || w.tryEvict == nil {
		return
	}
	var before v1beta1.GPUNode
	if err := w.api.Get(w.t.Context(), client.ObjectKeyFromObject(g), &before); err != nil || before.Status.State != v1beta1.Tainted ||
		before.ResourceVersion != g.ResourceVersion {
		return
	}
	var pods corev1.PodList
	require.NoError(w.t, w.api.List(w.t.Context(), &pods))
	for i := range pods.Items {
		pod := &pods.Items[i]
		node, devices := w.devicesOf(client.ObjectKeyFromObject(pod))
		if node != g.Name || pod.DeletionTimestamp != nil {
			continue
		}
		for device, gpuID := range devices {
			if w.nodes[node].names(gpuID, device) {
				assert.NoError(w.t, w.tryEvict(client.ObjectKeyFromObject(pod)), "a drain begins, and pod %s cannot leave", pod.Name)
			}
		}
	}
}
