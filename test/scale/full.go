package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	"github.com/tranche-dev/tranche/test/nodes"
)

// fills are what full nodes are full of, while pods are scheduled that ask for a device of a class.
// All nodes but one are full, or every second one.
var fills = []struct {
	name, inventory, full, class string
	half                         bool
}{
	{"all but one full of whole GPUs", "h100x8", "gpu.tranche.dev", "gpu-mig-1g-10gb.tranche.dev", false},
	{"all but one full of 1g.10gb", "h100x8", "gpu-mig-1g-10gb.tranche.dev", "gpu-mig-1g-10gb.tranche.dev", false},
	{"all but one full of 3g.40gb", "h100x8", "gpu-mig-3g-40gb.tranche.dev", "gpu-mig-1g-10gb.tranche.dev", false},
	{"all but one full of CPX partitions", "mi300x8", "gpu-xcp-cpx.tranche.dev", "gpu-xcp-cpx.tranche.dev", false},
	{"half of them full of 1g.10gb", "h100x8", "gpu-mig-1g-10gb.tranche.dev", "gpu-mig-1g-10gb.tranche.dev", true},
	{"half of them full of whole GPUs", "h100x8", "gpu.tranche.dev", "gpu.tranche.dev", true},
}

const (
	// fullBatch is how many pods are scheduled with requests and without: both fit a free node.
	fullBatch = 20
	// fullLimit is what pods with requests may cost, as a share of those without. halfLimit is the same
	// where every second node is free, so that its devices are evaluated.
	fullLimit = 0.05
	halfLimit = 1.0 / 3
	// nodeMemoryLimit is in MB. About 1 MB of it is what a scheduler needs without GPUs, on a hundred
	// nodes.
	nodeMemoryLimit = 4.5
)

// full is what the scheduler uses: CPU time per pod in seconds and, while pods have requests, memory
// per node in MB. perSecond is how many of these it schedules.
type full struct{ without, with, memory, perSecond float64 }

func (s *scale) fullFigures(ctx context.Context) []figures.Figure {
	var all []figures.Figure
	for i, fill := range fills {
		on := fmt.Sprintf("%d nodes, %s: ", s.schedulerNodes, fill.name)
		run := sync.OnceValues(func() (full, error) { return s.runFull(ctx, i) })
		limit := fullLimit
		if fill.half {
			limit = halfLimit
		}
		all = append(all, figures.Figure{
			Name:  on + "scheduler CPU per pod with requests for GPU memory and compute, against without",
			Limit: figures.AtMost(limit, "×"),
			Measure: figures.From(run, func(f full) figures.Reading {
				return figures.Reading{Value: f.with / f.without, Seen: fmt.Sprintf("%.2f against %.1f ms; %.0f pods per second", f.with*1000, f.without*1000, f.perSecond)}
			}),
		}, figures.Figure{
			Name:  on + "scheduler memory per node",
			Limit: figures.AtMost(nodeMemoryLimit, "MB"),
			Measure: figures.From(run, func(f full) figures.Reading {
				return figures.Reading{Value: f.memory, Seen: "VmHWM after the first pods, which have requests"}
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
	var used controlplane.Usage
	batch := func(name string, count int, requests corev1.ResourceList) (float64, error) {
		before, err := scheduler.Usage()
		if err != nil {
			return 0, err
		}
		if err := c.schedulePods(ctx, scheduler, name, fills[fill].class, count, requests); err != nil {
			return 0, err
		}
		used, err = scheduler.Usage()
		return (used.CPU - before.CPU).Seconds() / float64(count), err
	}
	// The first pods have the scheduler compile selectors and fill caches.
	if _, err = batch("first", 2, n.pod.List()); err != nil {
		return f, err
	}
	f.memory = float64(used.Peak) / 1e6 / float64(s.schedulerNodes)
	if f.without, err = batch("without", fullBatch, nil); err != nil {
		return f, err
	}
	start := time.Now()
	f.with, err = batch("with", fullBatch, n.pod.List())
	f.perSecond = fullBatch / time.Since(start).Seconds()
	return f, err
}

// fullNodes are nodes that are alike. Some are full.
type fullNodes struct {
	*cluster
	half      bool
	inventory *models.Inventory
	classes   []*resourceapi.DeviceClass
	// grants fill a node. held is what they take at least, pod what a pod does that is scheduled,
	// and gives what a node has.
	grants           []*allocator.Grant
	held, pod, gives noderesources.Amount
}

func newFullNodes(ctx context.Context, c *cluster, fill int) (n *fullNodes, err error) {
	n = &fullNodes{cluster: c, half: fills[fill].half}
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
	leastOf := nodes.Least(n.classes)
	least := func(class string) noderesources.Amount {
		return leastOf(ctx, allocator.Claim("", allocator.Request("gpu", class, 1)))
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
	var all []string
	free := map[string]bool{}
	for i := range n.schedulerNodes {
		name := fmt.Sprintf("node-%04d", i)
		all = append(all, name)
		free[name] = i == n.schedulerNodes-1 || n.half && i%2 == 1
	}
	return controlplane.ForAll(ctx, all, func(ctx context.Context, name string) error {
		if err := n.createNode(ctx, name); err != nil {
			return err
		}
		if free[name] {
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
	return n.AddResources(ctx, name, n.gives.List())
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
