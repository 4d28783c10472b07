package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const (
	inventory = "h100x8"
	// admissionPatience is how long a policy of the chart may take to work.
	admissionPatience = time.Minute
)

// cluster is one for a policy, with nodes and the scheduler.
type cluster struct {
	*controlplane.Cluster
	policy
	hardware  []gpu.GPU
	gpus      gpus
	scheduler *controlplane.Scheduler
	marks     *marks
}

// up starts a cluster with so many nodes. Stop ends it.
func (s *settings) up(ctx context.Context, p policy, count int) (c *cluster, stop func() error, err error) {
	core, err := s.launcher.Up(ctx, "--api-only")
	if err != nil {
		return nil, nil, err
	}
	c = &cluster{Cluster: core, policy: p}
	inner, cancel := context.WithCancel(ctx)
	stop = func() error {
		cancel()
		var err error
		if c.marks != nil {
			c.marks.ended.Wait()
		}
		if c.scheduler != nil {
			err = c.scheduler.Stop()
		}
		s.launcher.Down(ctx)
		return err
	}
	if err := c.prepare(inner, count); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return c, stop, nil
}

// prepare installs the chart, makes the nodes with their slices, and starts the scheduler.
func (c *cluster) prepare(ctx context.Context, count int) error {
	var set []string
	if c.values != "" {
		set = []string{"--set", c.values}
	}
	if err := c.InstallChart(ctx, set...); err != nil {
		return err
	}
	if err := c.CreateServiceAccount(ctx); err != nil {
		return err
	}
	if err := c.createNodes(ctx, count); err != nil {
		return err
	}
	if c.requests {
		classes, err := c.Core.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		c.ask = withRequests(ctx, c.ask, pointers(classes.Items))
	}
	var configuration map[string]any
	var err error
	if c.configuration != nil {
		if configuration, err = c.configuration(ctx, c.Cluster); err != nil {
			return err
		}
	}
	if c.scheduler, err = c.StartScheduler(ctx, configuration); err != nil {
		return err
	}
	if c.policy.marks {
		if c.marks, err = startMarks(ctx, c.Cluster, c.gpus); err != nil {
			return err
		}
	}
	return c.awaitAdmission(ctx)
}

func (c *cluster) createNodes(ctx context.Context, count int) error {
	inv, err := models.LoadInventory(inventory)
	if err != nil {
		return err
	}
	if c.hardware, err = nodes.NVIDIAGPUs(ctx, inv, "node", ""); err != nil {
		return err
	}
	nodes.OnlyOffered(c.hardware)
	names, slices, err := publish(count, c.hardware)
	if err != nil {
		return err
	}
	c.gpus = gpus{}
	for _, published := range slices {
		for at, name := range gpusOf(published) {
			c.gpus[at] = name
		}
	}
	gives := noderesources.Of(c.hardware).List()
	return controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		if err := c.CreateReadyNode(ctx, name); err != nil {
			return err
		}
		if err := c.AddResources(ctx, name, gives); err != nil {
			return err
		}
		return c.CreateSlices(ctx, slices[name])
	})
}

// publish returns the names of nodes and what each publishes.
func publish(count int, hardware []gpu.GPU) ([]string, map[string][]*resourceapi.ResourceSlice, error) {
	hardware, err := nodes.WithShares(hardware, true)
	if err != nil {
		return nil, nil, err
	}
	names, slices := make([]string, count), map[string][]*resourceapi.ResourceSlice{}
	for i := range names {
		names[i] = nodeName(i)
		if slices[names[i]], err = nodes.Slices(names[i], hardware); err != nil {
			return nil, nil, err
		}
	}
	return names, slices, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// awaitAdmission waits until the chart's policies for pods work: the API server reads them after
// a moment.
func (c *cluster) awaitAdmission(ctx context.Context) error {
	if c.admitted == nil {
		return nil
	}
	pod := newPod("dry-run", small)
	c.ask(pod, workload.Kinds[small.Kind])
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, admissionPatience, true, func(ctx context.Context) (bool, error) {
		admitted, err := c.Core.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && c.admitted(admitted), err
	})
	if err != nil {
		return fmt.Errorf("wait for the chart's policies for pods: %w", err)
	}
	return nil
}

// cost is what the scheduler and the API server have done so far.
type cost struct {
	cpu    time.Duration
	writes controlplane.Writes
}

func (c *cluster) cost(ctx context.Context) (cost, error) {
	used, err := c.scheduler.Usage()
	if err != nil {
		return cost{}, err
	}
	writes, err := c.ReadWrites(ctx)
	return cost{used.CPU, writes}, err
}

// claims are all claims of the cluster.
func (c *cluster) claims(ctx context.Context) ([]*resourceapi.ResourceClaim, error) {
	list, err := c.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

func pointers[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
