package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/terminal"
	"github.com/tranche-dev/tranche/pkg/usage"
)

const (
	defaultInterval = 5 * time.Second
	// shortestInterval spares the API server, which passes on every answer.
	shortestInterval = time.Second
)

// watch reads again and again until the user ends it: on a terminal it draws the same picture
// again, otherwise it writes a block for each round. A failure of the first round is one of the
// command.
func (r *topRun) watch(ctx context.Context, readNodes func(context.Context) ([]usage.Node, error)) error {
	live := terminal.Live{Out: r.out}
	var last []usage.Node
	for round := 0; ; round++ {
		started := time.Now()
		nodes, err := readNodes(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the user ended it
		case err != nil && round == 0:
			return err
		}
		shown := withOld(nodes, last)
		if err != nil {
			shown = withOld(unanswered(last, err), last)
		}
		if last = nodes; err != nil {
			last = nil // values are shown as old once
		}
		if err := r.round(&live, started, shown, err); err != nil {
			return err
		}
		// The lines of progress are those of the first round.
		ctx = read.WithProgress(ctx, nil)
		if sleep.For(ctx, max(shortestInterval, r.flags.interval-time.Since(started))) != nil {
			return nil //nolint:nilerr // the user ended it
		}
	}
}

// round shows one round. err is why nothing could be read.
func (r *topRun) round(live *terminal.Live, started time.Time, nodes []usage.Node, err error) error {
	var b strings.Builder
	screen := r.look()
	one := *r
	one.out, one.screen = &b, screen
	fmt.Fprintf(&b, "%s\n", started.Format(time.TimeOnly))
	if len(nodes) > 0 || err == nil {
		if err := one.show(slices.Clone(nodes)); err != nil {
			return err
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "Note: the usage cannot be read: %s.\n", strings.TrimSuffix(err.Error(), "."))
	}
	if screen.Live {
		live.On(screen)
		return live.Draw(b.String())
	}
	b.WriteString("\n")
	if _, err := r.out.Write([]byte(b.String())); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// unanswered are the nodes of a round that failed as a whole.
func unanswered(last []usage.Node, err error) []usage.Node {
	var out []usage.Node
	for i := range last {
		out = append(out, usage.Node{Name: last[i].Name, Unknown: strings.TrimSuffix(err.Error(), "."), GPUs: []usage.GPU{}})
	}
	return out
}

// withOld has the values of the round before for nodes that do not answer. In the next round, they
// have none.
func withOld(nodes, last []usage.Node) []usage.Node {
	out := slices.Clone(nodes)
	for i, n := range out {
		at := slices.IndexFunc(last, func(before usage.Node) bool { return before.Name == n.Name })
		if n.Unknown != "" && len(n.GPUs) == 0 && at >= 0 && last[at].Unknown == "" {
			out[i] = last[at]
			out[i].Old = n.Unknown
		}
	}
	return out
}
