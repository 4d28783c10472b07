package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
)

func (c *cluster) createClass(ctx context.Context, class *resourceapi.DeviceClass) error {
	_, err := c.Core.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// schedulePods makes pods, each with a claim of its own for one device of a class, and
// waits until all are bound. The claims are made here, since the controller that makes
// them of templates does not run.
func (c *cluster) schedulePods(ctx context.Context, scheduler *controlplane.Scheduler, prefix, class string, count int, requests corev1.ResourceList) error {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error { return c.createPod(ctx, name, class, requests) }); err != nil {
		return err
	}
	if err := c.AwaitBound(ctx, scheduler); err != nil {
		return fmt.Errorf("%d pods with a device of %s: %w", count, class, err)
	}
	return nil
}

// createPod makes a pod and its claim, with requests beside it. Pods ask for CPUs as real ones do: the scheduler
// then spreads them over the nodes.
func (c *cluster) createPod(ctx context.Context, name, class string, requests corev1.ResourceList) error {
	claim := allocator.Claim(name, allocator.Request("gpu", class, 1))
	if _, err := c.Core.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.Core.CoreV1().Pods(claim.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			ResourceClaims:               []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}},
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox:1.35",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}, Limits: requests,
					Claims: []corev1.ResourceClaim{{Name: "gpu"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}
