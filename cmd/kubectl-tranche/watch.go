package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

const (
	// collect is for how long changes are collected before they are shown together.
	collect = 200 * time.Millisecond
	// retry is after how long what cannot be read is tried again.
	retry = 5 * time.Second
	// redraw is how often a picture is drawn if nothing changes: it says how long things take.
	redraw = 30 * time.Second
)

// watch shows changes until the user ends it: on a terminal as a picture that is drawn again,
// otherwise in a line for each.
func (r *showRun) watch(ctx context.Context, c connection, from reader) error {
	kept := newWatched(c)
	from.source = kept
	live := terminal.Live{Out: r.out}
	var last *cluster.Summary
	for {
		started := time.Now()
		from.now = started
		in, view, err := from.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the user ended it
		case err != nil && last == nil:
			return err
		case err != nil:
			kept.wrong(err)
			if sleep.For(ctx, retry) != nil {
				return nil //nolint:nilerr // the user ended it
			}
			continue
		}
		in.Notes = append(in.Notes, kept.notes()...)
		now := cluster.New(in).Summary(ctx, view)
		if err := r.tell(&live, last, now); err != nil {
			return err
		}
		last = now
		// Large clusters take a while to sum up, and the rest of the machine has other things to do.
		if sleep.For(ctx, max(collect, 2*time.Since(started))) != nil || !kept.wait(ctx, r.idle()) {
			return nil //nolint:nilerr // the user ended it
		}
	}
}

// idle is how long nothing is done if nothing changes, 0 for ever.
func (r *showRun) idle() time.Duration {
	if r.screen(r.out).Live {
		return redraw
	}
	return 0
}

// tell draws the picture, or writes what has changed.
func (r *showRun) tell(live *terminal.Live, last, now *cluster.Summary) error {
	return r.tellOn(r.screen(r.out), live, last, now)
}

func (r *showRun) tellOn(screen terminal.Screen, live *terminal.Live, last, now *cluster.Summary) error {
	if screen.Live {
		var picked strings.Builder
		if err := r.draw(&picked, now, screen); err != nil {
			return err
		}
		live.On(screen)
		return live.Draw(picked.String())
	}
	lines := []string{overview.Line(now)}
	if last != nil {
		lines = overview.Changes(last, now)
	}
	for _, note := range now.Notes {
		if last == nil || !slices.Contains(last.Notes, note) {
			lines = append(lines, "Note: "+note)
		}
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%s %s\n", now.Now.Format(time.TimeOnly), line)
	}
	if _, err := io.WriteString(r.out, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
