package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	inventory = "h100x8"
	// admissionPatience is how long a policy may take to work.
	admissionPatience = time.Minute
)

// filled is what a number of pods have opened and cost.
type filled struct {
	gpus, nodes int
	// cpu is the CPU time of the scheduler per pod.
	cpu time.Duration
	// sliceWrites is the number of writes to ResourceSlices per pod.
	sliceWrites float64
}

// filling is a way in a cluster of its own.
type filling struct {
	*controlplane.Cluster
	way
	pods      int
	gpus      gpus
	scheduler *controlplane.Program
	marks     *marks
}

// run fills a new cluster by a way.
func (s *settings) run(ctx context.Context, w way) (r filled, err error) {
	c, err := s.launcher.Up(ctx, "--api-only")
	if err != nil {
		return filled{}, err
	}
	defer s.launcher.Down(ctx)
	f := &filling{Cluster: c, way: w, pods: s.pods}
	if err := f.prepare(ctx, s.nodes); err != nil {
		return filled{}, err
	}
	var configuration map[string]any
	if w.configuration != nil {
		if configuration, err = w.configuration(ctx, c); err != nil {
			return filled{}, err
		}
	}
	if f.scheduler, err = c.StartScheduler(ctx, configuration); err != nil {
		return filled{}, err
	}
	defer func() { err = errors.Join(err, f.scheduler.Stop()) }()
	if w.marks {
		ctx, stop := context.WithCancel(ctx)
		if f.marks, err = startMarks(ctx, c, f.gpus); err != nil {
			stop()
			return filled{}, err
		}
		defer func() { stop(); f.marks.ended.Wait() }()
	}
	return f.measure(ctx)
}

// prepare installs the chart and makes the nodes with their slices.
func (f *filling) prepare(ctx context.Context, count int) error {
	var set []string
	if f.values != "" {
		set = []string{"--set", f.values}
	}
	if err := f.InstallChart(ctx, set...); err != nil {
		return err
	}
	if err := f.CreateServiceAccount(ctx); err != nil {
		return err
	}
	inv, err := models.LoadInventory(inventory)
	if err != nil {
		return err
	}
	hardware, err := nodes.NVIDIAGPUs(ctx, inv, "node", "")
	if err != nil {
		return err
	}
	names, slices, err := publish(count, hardware)
	if err != nil {
		return err
	}
	f.gpus = gpus{}
	for _, published := range slices {
		for at, name := range gpusOf(published) {
			f.gpus[at] = name
		}
	}
	return controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		if err := f.CreateReadyNode(ctx, name); err != nil {
			return err
		}
		return f.CreateSlices(ctx, slices[name])
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
		names[i] = fmt.Sprintf("node-%03d", i)
		if slices[names[i]], err = nodes.Slices(names[i], hardware); err != nil {
			return nil, nil, err
		}
	}
	return names, slices, nil
}

// measure has the pods scheduled. A pod before them has the scheduler compile the selectors.
func (f *filling) measure(ctx context.Context) (filled, error) {
	if err := f.awaitAdmission(ctx); err != nil {
		return filled{}, err
	}
	if err := f.schedule(ctx, "first", 1); err != nil {
		return filled{}, err
	}
	if err := deletePods(ctx, f.Cluster); err != nil {
		return filled{}, err
	}
	if _, err := f.opened(ctx); err != nil {
		return filled{}, err
	}
	used, err := f.scheduler.Usage()
	if err != nil {
		return filled{}, err
	}
	written, err := f.ReadWrites(ctx)
	if err != nil {
		return filled{}, err
	}
	if err := f.schedule(ctx, "pod", f.pods); err != nil {
		return filled{}, err
	}
	usedThen, err := f.scheduler.Usage()
	if err != nil {
		return filled{}, err
	}
	r, err := f.opened(ctx)
	if err != nil {
		return filled{}, err
	}
	writtenThen, err := f.ReadWrites(ctx)
	r.cpu = (usedThen.CPU - used.CPU) / time.Duration(f.pods)
	r.sliceWrites = float64(writtenThen.Since(written).Of("resourceslices")) / float64(f.pods)
	return r, err
}

// awaitAdmission waits until the chart's policies work: the API server reads them after a moment.
func (f *filling) awaitAdmission(ctx context.Context) error {
	if f.admitted == nil {
		return nil
	}
	pod := newPod("dry-run")
	f.ask(pod)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, admissionPatience, true, func(ctx context.Context) (bool, error) {
		admitted, err := f.Core.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && f.admitted(admitted), err
	})
	if err != nil {
		return fmt.Errorf("wait for the chart's policies for pods: %w", err)
	}
	return nil
}

// schedule makes pods at once and waits until all are bound.
func (f *filling) schedule(ctx context.Context, prefix string, count int) error {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		return createPod(ctx, f.Cluster, name, f.ask)
	}); err != nil {
		return err
	}
	return f.AwaitBound(ctx, f.scheduler)
}

// opened counts the GPUs and nodes in use, and waits until these GPUs are marked.
func (f *filling) opened(ctx context.Context) (filled, error) {
	claims, err := f.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return filled{}, err
	}
	all := make([]*resourceapi.ResourceClaim, len(claims.Items))
	for i := range claims.Items {
		all[i] = &claims.Items[i]
	}
	used := f.gpus.used(all)
	pods, err := f.Core.CoreV1().Pods(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return filled{}, err
	}
	on := sets.New[string]()
	for i := range pods.Items {
		on.Insert(pods.Items[i].Spec.NodeName)
	}
	if f.marks != nil {
		err = f.marks.await(ctx, used)
	}
	return filled{gpus: used.Len(), nodes: on.Len()}, err
}
