package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/sleep"
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
	live := picture.Live{Out: r.out}
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
func (r *topRun) round(live *picture.Live, started time.Time, nodes []usage.Node, err error) error {
	draw := func(p *picture.Page) {
		p.Line(picture.Text(started.Format(time.TimeOnly), picture.Normal))
		if len(nodes) > 0 || err == nil {
			_, draw := r.picture(slices.Clone(nodes))
			draw(p)
		}
		if err != nil {
			p.Wrap("Note: ", "the usage cannot be read: "+strings.TrimSuffix(err.Error(), ".")+".", picture.Normal)
		}
	}
	screen := r.screen()
	if screen.Live {
		return live.Redraw(screen, draw)
	}
	if err := screen.Draw(r.out, draw); err != nil {
		return err
	}
	return r.say("")
}

// unanswered returns the nodes of a round that failed as a whole.
func unanswered(last []usage.Node, err error) []usage.Node {
	return lists.Map(last, func(n usage.Node) usage.Node { return usage.Unanswered(n.Name, "", err) })
}

// withOld has the values of the round before for nodes that do not answer. In the next round, they
// have none.
func withOld(nodes, last []usage.Node) []usage.Node {
	out := slices.Clone(nodes)
	for i, n := range out {
		at := slices.IndexFunc(last, func(before usage.Node) bool { return before.Name == n.Name })
		if len(n.Unread) > 0 && at >= 0 && len(last[at].Unread) == 0 {
			out[i] = last[at]
			out[i].Old = n.Unread[0].Message
		}
	}
	return out
}
