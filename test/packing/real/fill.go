package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// small is what the pods request that fill nodes: a 1g.10gb, 4 CPUs and 16 GiB of memory.
var small = workload.Shape{Kind: 0, CPU: 4000, Memory: 16 << 10}

// filled is what a number of pods have opened and cost.
type filled struct {
	gpus, nodes int
	// cpu is the CPU time of the scheduler per pod.
	cpu time.Duration
	// sliceWrites is the number of writes to ResourceSlices per pod.
	sliceWrites float64
}

// fillAll measures each policy in turn, as often as there are rounds.
func (s *settings) fillAll(ctx context.Context, chosen []policy) (string, error) {
	results := map[string][]filled{}
	for round := range s.rounds {
		for _, p := range chosen {
			fmt.Fprintf(os.Stderr, "Round %d of %d: %d pods by %s\n", round+1, s.rounds, s.pods, p.name)
			r, err := s.fill(ctx, p)
			if err != nil {
				return "", fmt.Errorf("%s: %w", p.name, err)
			}
			results[p.name] = append(results[p.name], r)
		}
	}
	return fillReport(chosen, results), nil
}

// fill fills a new cluster by a policy.
func (s *settings) fill(ctx context.Context, p policy) (r filled, err error) {
	c, stop, err := s.up(ctx, p, s.fillNodes)
	if err != nil {
		return filled{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// A pod before the others has the scheduler compile the selectors.
	if err := c.schedule(ctx, "first", 1); err != nil {
		return filled{}, err
	}
	if err := deletePod(ctx, c.Cluster, podName("first", 0)); err != nil {
		return filled{}, err
	}
	if _, err := c.opened(ctx); err != nil {
		return filled{}, err
	}
	before, err := c.cost(ctx)
	if err != nil {
		return filled{}, err
	}
	if err := c.schedule(ctx, "pod", s.pods); err != nil {
		return filled{}, err
	}
	after, err := c.cost(ctx)
	if err != nil {
		return filled{}, err
	}
	if r, err = c.opened(ctx); err != nil {
		return filled{}, err
	}
	written, err := c.ReadWrites(ctx)
	r.cpu = (after.cpu - before.cpu) / time.Duration(s.pods)
	r.sliceWrites = float64(written.Since(before.writes).Of("resourceslices")) / float64(s.pods)
	return r, err
}

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%05d", prefix, i) }

// schedule makes small pods at once and waits until all are bound.
func (c *cluster) schedule(ctx context.Context, prefix string, count int) error {
	names := make([]string, count)
	for i := range names {
		names[i] = podName(prefix, i)
	}
	if err := controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		return createPod(ctx, c.Cluster, name, small, c.ask)
	}); err != nil {
		return err
	}
	return c.AwaitBound(ctx, c.scheduler)
}

// opened counts the GPUs and nodes in use, and waits until these GPUs are marked.
func (c *cluster) opened(ctx context.Context) (filled, error) {
	claims, err := c.claims(ctx)
	if err != nil {
		return filled{}, err
	}
	used := c.gpus.used(claims)
	pods, err := c.Core.CoreV1().Pods(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return filled{}, err
	}
	on := sets.New[string]()
	for i := range pods.Items {
		on.Insert(pods.Items[i].Spec.NodeName)
	}
	if c.marks != nil {
		err = c.marks.await(ctx, used)
	}
	return filled{gpus: used.Len(), nodes: on.Len()}, err
}

// fillReport is a table of all policies, with the least and the greatest of all rounds.
func fillReport(chosen []policy, results map[string][]filled) string {
	var b strings.Builder
	b.WriteString("| policy | GPUs in use | nodes in use | scheduler CPU per pod | slice writes per pod |\n|---|---|---|---|---|\n")
	for _, p := range chosen {
		all := results[p.name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s ms | %s |\n", p.name,
			span(all, "%d", func(f filled) int { return f.gpus }), span(all, "%d", func(f filled) int { return f.nodes }),
			span(all, "%d", func(f filled) int64 { return f.cpu.Round(time.Millisecond).Milliseconds() }),
			span(all, "%.2f", func(f filled) float64 { return f.sliceWrites }))
	}
	return b.String()
}

// span is the least and the greatest value of some results.
func span[T cmp.Ordered](all []filled, format string, value func(filled) T) string {
	values := make([]T, len(all))
	for i, f := range all {
		values[i] = value(f)
	}
	least, most := fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values))
	if least == most {
		return least
	}
	return least + "–" + most
}
