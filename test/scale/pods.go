package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/test/allocator"
)

// podPatience is how long the scheduler may take for all pods that are waiting.
const podPatience = 10 * time.Minute

// startScheduler starts the cluster's scheduler as its control plane would, outside of
// the cluster's network, where its CPU time can be read.
func (c *cluster) startScheduler(ctx context.Context) (*program, error) {
	out, err := exec.CommandContext(ctx, c.launcher, "path").Output()
	if err != nil {
		return nil, fmt.Errorf("find the scheduler's program: %w", err)
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(c.dir, "pki", "kube-scheduler.kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's credentials: %w", err)
	}
	for _, api := range config.Clusters {
		api.Server = c.config.Host
	}
	kubeconfig := c.own("kube-scheduler.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	p, err := c.startProgram(ctx, "kube-scheduler", filepath.Join(strings.TrimSpace(string(out)), "kube-scheduler"), nil,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--leader-elect=false")
	if err != nil {
		return nil, fmt.Errorf("start the scheduler: %w", err)
	}
	return p, nil
}

// createReadyNode makes a node object that takes pods. Admission taints every new node as
// not ready, and the lifecycle controller, which would remove the taint, does not run.
func (c *cluster) createReadyNode(ctx context.Context, name string) error {
	if err := c.createNode(ctx, name); err != nil {
		return err
	}
	all := c.core.CoreV1().Nodes()
	node, err := all.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil
	if node, err = all.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = all.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (c *cluster) createSlices(ctx context.Context, published []*resourceapi.ResourceSlice) error {
	for _, slice := range published {
		slice = slice.DeepCopy()
		slice.OwnerReferences = nil // no garbage collector runs
		if _, err := c.core.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) createClass(ctx context.Context, class *resourceapi.DeviceClass) error {
	_, err := c.core.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// schedulePods makes pods, each with a claim of its own for one device of a class, and
// waits until all are bound. The claims are made here, since the controller that makes
// them of templates does not run.
func (c *cluster) schedulePods(ctx context.Context, scheduler *program, prefix, class string, count int) error {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	if err := forAll(ctx, names, func(ctx context.Context, name string) error { return c.createPod(ctx, name, class) }); err != nil {
		return err
	}
	left := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, podPatience, false, func(ctx context.Context) (bool, error) {
		select {
		case <-scheduler.exited:
			return false, errors.New("the scheduler has ended")
		default:
		}
		waiting, err := c.core.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil {
			left = len(waiting.Items)
		}
		return left == 0, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods with a device of %s are not scheduled (log: %s): %w", left, count, class, scheduler.log, err)
	}
	return nil
}

// createServiceAccount makes the account that pods have unless they name one. Otherwise
// admission refuses them.
func (c *cluster) createServiceAccount(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := c.core.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
	return err
}

// createPod makes a pod and its claim. Pods ask for CPUs as real ones do: the scheduler
// then spreads them over the nodes.
func (c *cluster) createPod(ctx context.Context, name, class string) error {
	claim := allocator.Claim(name, allocator.Request("gpu", class, 1))
	if _, err := c.core.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.core.CoreV1().Pods(claim.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			ResourceClaims:               []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}},
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox:1.35",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
					Claims:   []corev1.ResourceClaim{{Name: "gpu"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}
