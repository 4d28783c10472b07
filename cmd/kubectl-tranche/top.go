package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
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

type topFlags struct {
	nodes    []string
	selector string
	sortBy   string
	system   string
	all      bool
	watch    bool
	interval time.Duration
}

func newTopCommand(o *options) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:     "top [nodes|gpus|pods]",
		Short:   "Show how much nodes, GPUs, partitions and pods use",
		Long:    topLong,
		Example: topExamples,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: f.check,
		RunE: o.connected(func(ctx context.Context, s *session, args []string) error {
			return (&topRun{session: s, flags: f, what: topOf[strings.Join(args, "")]}).run(ctx)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.system, "system-namespace", "", "namespace of Tranche (default: the one that its DeviceClasses name)")
	flags.StringSliceVar(&f.nodes, "node", nil, "show only this node; repeatable")
	flags.StringVarP(&f.selector, "selector", "l", "", "show only the nodes with these labels")
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	flags.StringVar(&f.sortBy, "sort-by", "", "sort by name, memory, compute or power")
	flags.BoolVarP(&f.watch, "watch", "w", false, "read again and again, until Ctrl-C")
	flags.DurationVar(&f.interval, "interval", defaultInterval, "time between two rounds of --watch, at least 1s")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "show pods of all namespaces (default without --namespace)")
	return cmd
}

type topRun struct {
	*session
	flags topFlags
	what  string // nodes, gpus, pods, or empty
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

func (f *topFlags) check(cmd *cobra.Command, args []string) error {
	what, ok := topOf[strings.Join(args, "")]
	if !ok {
		return fmt.Errorf("unknown argument %q: use nodes, gpus or pods", args[0])
	}
	if namespace := cmd.Flag("namespace").Value.String(); namespace != "" && !f.all && what != "pods" {
		return fmt.Errorf("--namespace %s selects pods: use kubectl tranche top pods -n %[1]s", namespace)
	}
	if _, ok := sortKeys[f.sortBy]; !ok && f.sortBy != "" && f.sortBy != "name" {
		return fmt.Errorf("--sort-by %q: use name, memory, compute or power", f.sortBy)
	}
	switch output := outputOf(cmd); {
	case f.watch && output != "":
		return fmt.Errorf("--watch draws, or writes a block for each round: leave out -o %s", output)
	case f.watch && f.interval < shortestInterval:
		return fmt.Errorf("--interval %s: use at least %s", f.interval, shortestInterval)
	case cmd.Flags().Changed("interval") && !f.watch:
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
	return r.show(r.picture(nodes))
}

// picture returns what is shown of nodes, which it sorts, and what draws it.
func (r *topRun) picture(nodes []usage.Node) (content any, draw func(*picture.Page)) {
	sortUsage(nodes, r.flags.sortBy, func(n usage.Node) usage.Values { return n.Values })
	for i := range nodes {
		sortUsage(nodes[i].GPUs, r.flags.sortBy, func(g usage.GPU) usage.Values { return g.Values })
	}
	if r.what == "pods" {
		pods := usage.Pods(nodes)
		pods.Items = slices.DeleteFunc(pods.Items, func(p usage.Pod) bool { return r.asked != "" && !r.flags.all && p.Namespace != r.asked })
		sortUsage(pods.Items, r.flags.sortBy, func(p usage.Pod) usage.Values { return p.Values })
		return pods, func(p *picture.Page) { picture.DrawPodUsage(p, pods) }
	}
	return nodes, func(p *picture.Page) {
		if r.what == "gpus" || r.what == "" && len(nodes) <= handful {
			picture.DrawGPUUsage(p, nodes)
		} else {
			picture.DrawNodeUsage(p, nodes)
		}
	}
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
		Kubernetes: r.Kubernetes, Namespace: system,
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

// foundAll returns an error if a node that was named has no plugin, or no GPUs. Those with labels may have none.
func (r *topRun) foundAll(nodes []usage.Node) error {
	for _, name := range r.flags.nodes {
		if r.flags.selector == "" && !slices.ContainsFunc(nodes, func(n usage.Node) bool { return n.Name == name }) {
			return fmt.Errorf("nothing is known of GPUs on a node %s; these nodes have GPUs: kubectl tranche -o name", name)
		}
	}
	return nil
}
