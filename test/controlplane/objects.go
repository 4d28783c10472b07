package controlplane

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// atOnce is how many requests are under way where many objects are made.
const atOnce = 32

// nodeResources is what nodes that take pods have: NVIDIA's DGX H100 has 224 threads and 2 TiB.
var nodeResources = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("224"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("250"),
}

// CreateNode makes a node object.
func (c *Cluster) CreateNode(ctx context.Context, name string) error {
	_, err := c.Core.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}}, metav1.CreateOptions{})
	return err
}

// CreateReadyNode makes a node object that takes pods. Admission taints every new node as
// not ready, and the lifecycle controller, which would remove the taint, does not run.
func (c *Cluster) CreateReadyNode(ctx context.Context, name string) error {
	if err := c.CreateNode(ctx, name); err != nil {
		return err
	}
	all := c.Core.CoreV1().Nodes()
	node, err := all.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil
	if node, err = all.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	node.Status.Allocatable, node.Status.Capacity = nodeResources, nodeResources
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = all.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// AddResources adds extended resources to what a node has.
func (c *Cluster) AddResources(ctx context.Context, name string, resources corev1.ResourceList) error {
	all := c.Core.CoreV1().Nodes()
	node, err := all.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, list := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
		*list = maps.Clone(*list)
		maps.Copy(*list, resources)
	}
	_, err = all.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// CreateSlices makes ResourceSlices without owners, since no garbage collector runs.
func (c *Cluster) CreateSlices(ctx context.Context, published []*resourceapi.ResourceSlice) error {
	for _, slice := range published {
		slice = slice.DeepCopy()
		slice.OwnerReferences = nil
		if _, err := c.Core.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// CreateServiceAccount makes the account that pods have unless they name one. Otherwise
// admission refuses them.
func (c *Cluster) CreateServiceAccount(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := c.Core.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
	return err
}

// ForAll does something for all names, many at once, and returns one of the errors.
func ForAll(ctx context.Context, names []string, do func(context.Context, string) error) error {
	work := make(chan string)
	failed := make(chan error, atOnce)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			var errs []error
			for name := range work {
				if err := do(ctx, name); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
			}
			if len(errs) > 0 {
				failed <- errs[0]
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	wg.Wait()
	close(failed)
	return <-failed
}
