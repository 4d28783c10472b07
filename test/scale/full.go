package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

// fills are what all nodes but one are full of, while pods are scheduled that ask for a device of a
// class.
var fills = []struct{ name, inventory, full, class string }{
	{"whole GPUs", "h100x8", "gpu.tranche.dev", "gpu-mig-1g-10gb.tranche.dev"},
	{"1g.10gb", "h100x8", "gpu-mig-1g-10gb.tranche.dev", "gpu-mig-1g-10gb.tranche.dev"},
	{"3g.40gb", "h100x8", "gpu-mig-3g-40gb.tranche.dev", "gpu-mig-1g-10gb.tranche.dev"},
	{"CPX partitions", "mi300x8", "gpu-xcp-cpx.tranche.dev", "gpu-xcp-cpx.tranche.dev"},
}

const (
	// fullBatch is how many pods are scheduled with requests and without: both fit the free node.
	fullBatch = 20
	// fullLimit is what pods with requests may cost, as a share of those without.
	fullLimit = 0.05
)

// full is the CPU time of the scheduler per pod, in seconds.
type full struct{ without, with float64 }

func (s *scale) fullFigures(ctx context.Context) []figures.Figure {
	var all []figures.Figure
	for i, fill := range fills {
		all = append(all, figures.Figure{
			Name:  fmt.Sprintf("%d nodes, all but one full of %s: scheduler CPU per pod with requests for GPU memory and compute, against without", s.schedulerNodes, fill.name),
			Limit: figures.AtMost(fullLimit, "×"),
			Measure: figures.From(sync.OnceValues(func() (full, error) { return s.runFull(ctx, i) }), func(f full) figures.Reading {
				return figures.Reading{Value: f.with / f.without, Seen: fmt.Sprintf("%.2f against %.1f ms", f.with*1000, f.without*1000)}
			}),
		})
	}
	return all
}

// runFull fills the nodes and schedules pods.
func (s *scale) runFull(ctx context.Context, fill int) (f full, err error) {
	on := *s
	on.launcher.Dir = fmt.Sprintf("%s-full-%d", s.launcher.Dir, fill)
	defer on.launcher.Down(ctx)
	c, err := on.up(ctx, "--api-only")
	if err != nil {
		return f, err
	}
	n, err := newFullNodes(ctx, c, fill)
	if err != nil {
		return f, err
	}
	if err := n.create(ctx); err != nil {
		return f, err
	}
	scheduler, err := c.StartScheduler(ctx, nil)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, scheduler.Stop()) }()
	batch := func(name string, count int, requests corev1.ResourceList) (float64, error) {
		before, err := scheduler.Usage()
		if err != nil {
			return 0, err
		}
		if err := c.schedulePods(ctx, scheduler, name, fills[fill].class, count, requests); err != nil {
			return 0, err
		}
		after, err := scheduler.Usage()
		return (after.CPU - before.CPU).Seconds() / float64(count), err
	}
	// The first pods have the scheduler compile selectors and fill caches.
	if _, err = batch("first", 2, nil); err != nil {
		return f, err
	}
	if f.without, err = batch("without", fullBatch, nil); err != nil {
		return f, err
	}
	f.with, err = batch("with", fullBatch, n.pod.List())
	return f, err
}

// fullNodes are nodes that are alike. All but the last are full.
type fullNodes struct {
	*cluster
	inventory *models.Inventory
	classes   []*resourceapi.DeviceClass
	// grants fill a node. held is what they take at least, pod what a pod does that is scheduled,
	// and gives what a node has.
	grants           []*allocator.Grant
	held, pod, gives noderesources.Amount
}

func newFullNodes(ctx context.Context, c *cluster, fill int) (n *fullNodes, err error) {
	n = &fullNodes{cluster: c}
	if n.inventory, err = models.LoadInventory(fills[fill].inventory); err != nil {
		return nil, err
	}
	if n.classes, err = allocator.Classes(renderedChart); err != nil {
		return nil, err
	}
	slices, err := n.slices("node")
	if err != nil {
		return nil, err
	}
	n.gives = noderesources.Of(n.inventory.Hardware("node"))
	node := allocator.New(n.classes, slices)
	for {
		claim := allocator.Claim(fmt.Sprint("held-", len(n.grants)), allocator.Request("gpu", fills[fill].full, 1))
		grant, err := node.Allocate(ctx, "node", claim)
		if err != nil {
			return nil, err
		}
		if grant == nil {
			break
		}
		n.grants = append(n.grants, grant)
	}
	catalog := noderesources.NewCatalog()
	least := func(class string) noderesources.Amount {
		spec := allocator.Claim("", allocator.Request("gpu", class, 1)).Spec
		return catalog.Least(ctx, &spec, func(name string) *resourceapi.DeviceClass {
			for _, class := range n.classes {
				if class.Name == name {
					return class
				}
			}
			return nil
		})
	}
	held, count := least(fills[fill].full), int64(len(n.grants))
	n.held = noderesources.Amount{MemoryMiB: held.MemoryMiB * count, Compute: held.Compute * count}
	n.pod = least(fills[fill].class)
	return n, nil
}

func (n *fullNodes) slices(node string) (all []*resourceapi.ResourceSlice, err error) {
	published, err := preview.Slices(preview.Node{Name: node, Inventory: n.inventory})
	for i := range published {
		all = append(all, &published[i])
	}
	return all, err
}

// create makes the device classes, and the nodes with what they hold.
func (n *fullNodes) create(ctx context.Context) error {
	for _, class := range n.classes {
		if err := n.createClass(ctx, class); err != nil {
			return err
		}
	}
	if err := n.CreateServiceAccount(ctx); err != nil {
		return err
	}
	all := make([]string, n.schedulerNodes)
	for i := range all {
		all[i] = fmt.Sprintf("node-%04d", i)
	}
	return controlplane.ForAll(ctx, all, func(ctx context.Context, name string) error {
		if err := n.createNode(ctx, name); err != nil {
			return err
		}
		if name == all[len(all)-1] {
			return nil
		}
		return n.fill(ctx, name)
	})
}

// createNode makes a node with its slices and resources.
func (n *fullNodes) createNode(ctx context.Context, name string) error {
	if err := n.CreateReadyNode(ctx, name); err != nil {
		return err
	}
	slices, err := n.slices(name)
	if err != nil {
		return err
	}
	if err := n.CreateSlices(ctx, slices); err != nil {
		return err
	}
	node, err := n.Core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, list := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
		*list = maps.Clone(*list)
		maps.Copy(*list, n.gives.List())
	}
	_, err = n.Core.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// fill makes a pod on the node that requests what the claims hold together, and the claims.
func (n *fullNodes) fill(ctx context.Context, node string) error {
	pod, err := n.Core.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "main", Image: "busybox:1.35", Resources: corev1.ResourceRequirements{Limits: n.held.List()}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claims := n.Core.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	for _, grant := range n.grants {
		claim := allocator.Claim(node+"-"+grant.Claim.Name, grant.Claim.Spec.Devices.Requests...)
		claim.Namespace = metav1.NamespaceDefault
		if claim, err = claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
		claim.Status = resourceapi.ResourceClaimStatus{
			Allocation:  grant.Result.DeepCopy(),
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
		}
		for i := range claim.Status.Allocation.Devices.Results {
			claim.Status.Allocation.Devices.Results[i].Pool = names.PoolName(node)
		}
		if _, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
