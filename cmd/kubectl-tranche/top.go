package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/terminal"
	"github.com/tranche-dev/tranche/pkg/usage"
)

const topExamples = `  # Show how much the GPUs of each node are used
  kubectl tranche top nodes

  # Show each GPU and partition of one node
  kubectl tranche top gpus --node node-a

  # Show what the pods of a namespace use, most memory first
  kubectl tranche top pods -n team-a --sort-by memory

  # Read the GPUs of one node again every 2 seconds
  kubectl tranche top gpus --node node-a --watch --interval 2s`

const topLong = `Show how much memory, compute and power nodes, GPUs with their partitions, or pods
use, as the plugins of Tranche measure it. Without an argument: nodes, or the GPUs of
up to 5 nodes. What is not known is shown as -: MIG partitions have no power of their
own, and not every GPU measures everything.

Requires permission to list the pods in the namespace of Tranche, and to get
pods/proxy there.`

// topFlags are those of the command top.
type topFlags struct {
	nodes    []string
	selector string
	output   string
	sortBy   string
	system   string
	all      bool
	watch    bool
	interval time.Duration
}

func newTopCommand(o *options, out io.Writer) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:     "top [nodes|gpus|pods]",
		Short:   "Show how much nodes, GPUs, partitions and pods use",
		Long:    topLong,
		Example: topExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &topRun{flags: f, out: out, paced: cmd.Flags().Changed("interval")}
			if len(args) > 0 {
				r.what = args[0]
			}
			if !f.all {
				r.namespace = *o.config.Namespace
			}
			if err := r.check(); err != nil {
				return err
			}
			var err error
			if r.connection, _, err = o.connect(); err != nil {
				return err
			}
			r.look = func() terminal.Screen { return o.screen(out) }
			r.screen = r.look()
			return r.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.system, "system-namespace", "", "namespace of Tranche (default: the one that its DeviceClasses name)")
	flags.StringSliceVar(&f.nodes, "node", nil, "show only this node; repeatable")
	flags.StringVarP(&f.selector, "selector", "l", "", "show only the nodes with these labels")
	addOutput(cmd, &f.output, "json", "yaml")
	flags.StringVar(&f.sortBy, "sort-by", "", "sort by name, memory, compute or power")
	flags.BoolVarP(&f.watch, "watch", "w", false, "read again and again, until Ctrl-C")
	flags.DurationVar(&f.interval, "interval", defaultInterval, "time between two rounds of --watch, at least 1s")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "show holders of all namespaces (default without --namespace)")
	return cmd
}

// topRun is the command at work.
type topRun struct {
	connection
	flags     topFlags
	out       io.Writer
	screen    terminal.Screen
	look      func() terminal.Screen // the screen can change while it is watched
	paced     bool                   // the user chose the interval
	what      string                 // nodes, gpus, pods, or empty
	namespace string
}

// topOf are what can be shown, with shorter names.
var topOf = map[string]string{
	"": "", "nodes": "nodes", "node": "nodes", "no": "nodes", "gpus": "gpus", "gpu": "gpus", "pods": "pods", "pod": "pods", "po": "pods",
}

// sortKeys are what can be sorted by.
var sortKeys = map[string]func(usage.Values) *float64{
	"memory":  func(v usage.Values) *float64 { return v.MemoryUsed },
	"compute": func(v usage.Values) *float64 { return cmp.Or(v.Compute, v.Engine) },
	"power":   func(v usage.Values) *float64 { return v.Power },
}

func (r *topRun) check() error {
	what, ok := topOf[r.what]
	if !ok {
		return fmt.Errorf("unknown argument %q: use nodes, gpus or pods", r.what)
	}
	r.what = what
	if r.namespace != "" && r.what != "pods" {
		return fmt.Errorf("--namespace %s selects pods: use kubectl tranche top pods -n %[1]s", r.namespace)
	}
	if _, ok := sortKeys[r.flags.sortBy]; !ok && r.flags.sortBy != "" && r.flags.sortBy != "name" {
		return fmt.Errorf("--sort-by %q: use name, memory, compute or power", r.flags.sortBy)
	}
	switch {
	case r.flags.watch && r.flags.output != "":
		return fmt.Errorf("--watch draws, or writes a block for each round: leave out -o %s", r.flags.output)
	case r.flags.watch && r.flags.interval < shortestInterval:
		return fmt.Errorf("--interval %s: use at least %s", r.flags.interval, shortestInterval)
	case r.paced && !r.flags.watch:
		return errors.New("--interval is the time between two rounds of --watch: add --watch")
	}
	return nil
}

func (r *topRun) run(ctx context.Context) error {
	if r.flags.watch {
		return r.watch(ctx, r.read)
	}
	nodes, err := r.read(ctx)
	if err != nil {
		return err
	}
	return r.show(nodes)
}

func (r *topRun) show(nodes []usage.Node) error {
	sortUsage(nodes, r.flags.sortBy, func(n usage.Node) usage.Values { return n.Values })
	for i := range nodes {
		sortUsage(nodes[i].GPUs, r.flags.sortBy, func(g usage.GPU) usage.Values { return g.Values })
	}
	if r.what == "pods" {
		return r.pods(nodes)
	}
	return write(r.out, r.flags.output, map[string]any{"nodes": nodes}, func() error {
		if r.what == "gpus" || r.what == "" && len(nodes) <= handful {
			return picture.DrawGPUUsage(r.out, r.screen, nodes)
		}
		return picture.DrawNodeUsage(r.out, r.screen, nodes)
	})
}

func (r *topRun) pods(nodes []usage.Node) error {
	pods := slices.DeleteFunc(usage.Pods(nodes), func(p usage.Pod) bool { return r.namespace != "" && p.Namespace != r.namespace })
	sortUsage(pods, r.flags.sortBy, func(p usage.Pod) usage.Values { return p.Values })
	return write(r.out, r.flags.output, map[string]any{"pods": pods}, func() error {
		return picture.DrawPodUsage(r.out, r.screen, pods, nodes)
	})
}

// sortUsage puts the largest first, and what is not known last. They are sorted by name.
func sortUsage[T any](all []T, by string, values func(T) usage.Values) {
	key := sortKeys[by]
	if key == nil {
		return
	}
	slices.SortStableFunc(all, func(a, b T) int {
		x, y := key(values(a)), key(values(b))
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return cmp.Compare(*y, *x)
	})
}

// read reads the plugins of the nodes that were asked for.
func (r *topRun) read(ctx context.Context) ([]usage.Node, error) {
	only := r.flags.nodes
	if r.flags.selector != "" {
		nodes, err := r.nodesWith(ctx, r.flags.selector)
		if err != nil {
			return nil, err
		}
		if only = selected(only, nodes); len(only) == 0 {
			return nil, fmt.Errorf("none of the nodes has the labels %s", r.flags.selector)
		}
	}
	system, err := r.systemNamespace(ctx, r.flags.system)
	if err != nil {
		return nil, err
	}
	progress := read.ProgressOf(ctx)
	defer progress.Done()
	from := usage.Reader{
		Kubernetes: r.kubernetes, Namespace: system,
		Progress: func(done, all int) { progress.Say("Read the metrics of %d of %d nodes.", done, all) },
	}
	if len(only) > 0 {
		from.Shows = func(node string) bool { return slices.Contains(only, node) }
	}
	nodes, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	return nodes, r.foundAll(nodes)
}

// foundAll is an error if a node that was named has no plugin, or no GPUs. Those with labels may have none.
func (r *topRun) foundAll(nodes []usage.Node) error {
	for _, name := range r.flags.nodes {
		if r.flags.selector == "" && !slices.ContainsFunc(nodes, func(n usage.Node) bool { return n.Name == name }) {
			return fmt.Errorf("nothing is known of GPUs on a node %s; these nodes have GPUs: kubectl tranche -o name", name)
		}
	}
	return nil
}
