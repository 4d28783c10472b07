package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

// handful is how many nodes are drawn one by one. More are summed up.
const handful = 5

// showRun is the command without a subcommand at work.
type showRun struct {
	*options
	out io.Writer
	// forced: the user said whether there is a summary.
	forced bool
}

func (r *showRun) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	c, own, err := r.connect()
	if err != nil {
		return err
	}
	from := reader{connection: c, selector: r.selector, own: own, now: time.Now()}
	if len(r.nodes) > 0 {
		from.only = r.nodes
	}
	if !r.allNamespaces {
		from.namespace = *r.config.Namespace
	}
	if r.options.watch {
		return r.watch(ctx, from)
	}
	in, view, err := from.read(ctx)
	if err != nil {
		return err
	}
	return r.show(cluster.New(in).Summary(ctx, view))
}

func (r *showRun) check() error {
	if r.options.watch && r.output != "" && r.output != "wide" {
		return fmt.Errorf("--watch draws, or writes a line for each change: leave out -o %s", r.output)
	}
	return nil
}

func (r *showRun) show(s *cluster.Summary) error {
	return write(r.out, r.output, r.content(s), func() error {
		if r.output == "name" {
			return r.names(s)
		}
		return r.draw(r.out, s, r.screen(r.out))
	})
}

// content is what is written for programs. For them, a summary is one only if it was asked for.
func (r *showRun) content(s *cluster.Summary) any {
	if r.forced && r.summary {
		return overview.Of(s)
	}
	return s
}

func (r *showRun) names(s *cluster.Summary) error {
	var b strings.Builder
	for i := range s.Nodes {
		b.WriteString("node/" + s.Nodes[i].Name + "\n")
	}
	if _, err := io.WriteString(r.out, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// draw draws each node, or their sums if they are many.
func (r *showRun) draw(out io.Writer, s *cluster.Summary, screen terminal.Screen) error {
	o := picture.Options{Screen: screen, Wide: r.output == "wide"}
	if r.forced && r.summary || !r.forced && len(s.Nodes) > handful {
		return picture.DrawOverview(out, s, o)
	}
	return picture.Draw(out, s, o)
}
