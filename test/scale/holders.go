package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	// leaveTime is how long a pod takes to end, and leavePatience how long to wait until one
	// is asked to.
	leaveTime     = 5 * time.Second
	leavePatience = 5 * time.Minute
)

// holders are pods that hold a partition each. No kubelet runs: they end when it is time.
type holders struct {
	*cluster
	pods []string
}

// createHolders makes a pod with a claim on each of some nodes.
func (c *cluster) createHolders(ctx context.Context, nodes []string) (*holders, error) {
	h := &holders{cluster: c, pods: nodes}
	return h, controlplane.ForAll(ctx, nodes, h.create)
}

// create makes the pod of a node, which has its name, and allocates its claim.
func (h *holders) create(ctx context.Context, node string) error {
	pod, err := h.Core.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(leaveTime / time.Second)),
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(node)}},
			Containers:     []corev1.Container{{Name: "main", Image: "busybox:1.35", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claims := h.Core.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	claim := allocator.Claim(node, allocator.Request("gpu", "gpu-mig-1g-10gb.tranche.dev", 1))
	claim.Namespace = metav1.NamespaceDefault
	if claim, err = claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim.Status = resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(node), Device: partition(0, 0)},
		}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// leaving are the pods that were asked to leave.
func (h *holders) leaving(ctx context.Context) (out []corev1.Pod, err error) {
	list, err := h.Core.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// awaitLeaving waits until a pod was asked to leave.
func (h *holders) awaitLeaving(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, leavePatience, true, func(ctx context.Context) (bool, error) {
		pods, err := h.leaving(ctx)
		return len(pods) > 0, err
	})
	if err != nil {
		return fmt.Errorf("no pod was asked to leave: %w", err)
	}
	return nil
}

// end ends pods when their time is over, as a kubelet would.
func (h *holders) end(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pods, err := h.leaving(ctx)
		for i := range pods {
			if time.Now().After(pods[i].DeletionTimestamp.Time) {
				err = h.Core.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pods[i].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			}
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "Pods do not end:", err)
		}
	}
}
