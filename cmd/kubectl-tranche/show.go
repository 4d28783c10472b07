package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/picture"
)

// handful is how many nodes are drawn one by one. More are summed up.
const handful = 5

type showFlags struct {
	nodes                         []string
	selector                      string
	allNamespaces, summary, watch bool
}

func (f *showFlags) check(cmd *cobra.Command, _ []string) error {
	if output := outputOf(cmd); f.watch && output != "" && output != "wide" {
		return fmt.Errorf("--watch draws, or writes a line for each change: leave out -o %s", output)
	}
	return nil
}

type showRun struct {
	*session
	flags showFlags
	// forced: the user said whether there is a summary.
	forced bool
}

func (r *showRun) run(ctx context.Context) error {
	from := reader{connection: r.connection, selector: r.flags.selector, own: r.namespace, now: r.now()}
	if len(r.flags.nodes) > 0 { // with --node= it is empty and not nil
		from.only = r.flags.nodes
	}
	if !r.flags.allNamespaces {
		from.namespace = r.asked
	}
	if r.flags.watch {
		return r.watch(ctx, from)
	}
	in, view, err := from.read(ctx)
	if err != nil {
		return err
	}
	s := cluster.New(in).Summary(ctx, view)
	if r.output == "name" {
		for i := range s.Nodes {
			if err := r.say("node/%s", s.Nodes[i].Name); err != nil {
				return err
			}
		}
		return nil
	}
	return r.show(r.content(s), r.picture(s))
}

// content returns what is written for programs. For them, a summary is one only if it was asked for.
func (r *showRun) content(s *cluster.Summary) any {
	if r.forced && r.flags.summary {
		return overview.Of(s)
	}
	return s
}

// picture draws each node, or their sums if they are many.
func (r *showRun) picture(s *cluster.Summary) func(*picture.Page) {
	draw := picture.Draw
	if r.forced && r.flags.summary || !r.forced && len(s.Nodes) > handful {
		draw = picture.DrawOverview
	}
	return func(p *picture.Page) { draw(p, s, r.output == "wide") }
}
