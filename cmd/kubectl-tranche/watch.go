package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/web/live"
)

const (
	// collect is for how long changes are collected before they are shown together.
	collect = 200 * time.Millisecond
	// redraw is how often a picture is drawn if nothing changes: it says how long things take.
	redraw = 30 * time.Second
)

// followed is a source of the nodes that were asked for.
type followed struct{ reader }

// ListWatch implements read.Source.
func (f followed) ListWatch(example runtime.Object, namespace string, only metav1.ListOptions) cache.ListerWatcher {
	switch example.(type) {
	case *corev1.Node:
		only.LabelSelector = f.selector
	case *resourceapi.ResourceSlice:
		if len(f.only) == 1 {
			only.FieldSelector += "," + fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, f.only[0]).String()
		}
	}
	return f.connection.ListWatch(example, namespace, only)
}

// shows reports whether a node was asked for. With a selector, the others are not read.
func (f followed) shows(n *overview.Node) bool {
	return (f.selector == "" || n.Ready != nil) && (f.only == nil || slices.Contains(f.only, n.Name))
}

// viewer names the holders of the namespace that was asked for.
func (f followed) viewer() overview.Viewer {
	if f.namespace == "" {
		return overview.Viewer{}
	}
	only := func(namespace string) bool { return namespace == f.namespace }
	return overview.Viewer{Claims: only, Pods: only}
}

// watch shows changes until the user ends it: on a terminal as a picture that is drawn again,
// otherwise in a line for each.
func (r *showRun) watch(ctx context.Context, of reader) error {
	if err := of.mayListSlices(ctx); err != nil {
		return err
	}
	if of.selector != "" {
		if _, err := of.nodesWith(ctx, of.selector); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	from, store := followed{of}, live.New(time.Now)
	changes, end := store.Subscribe()
	defer end()
	var following sync.WaitGroup
	following.Go(func() { store.Follow(ctx, from, cmp.Or(of.namespace, of.own)) })
	defer following.Wait()
	defer stop()
	drawn := picture.Live{Out: r.out}
	var last *cluster.Summary
	for {
		pause, idle := collect, r.idle()
		if s := store.Snapshot(); s.Complete {
			read.ProgressOf(ctx).Done()
			now := from.viewer().Summary(s, from.shows, time.Now())
			now.Only, now.Selector = of.only, of.selector
			if err := r.tell(&drawn, last, now); err != nil {
				return err
			}
			last = now
		} else {
			read.ProgressOf(ctx).Say("Reading %s.", strings.Join(store.Expected(), ", "))
			pause, idle = 0, time.Second
		}
		if sleep.For(ctx, pause) != nil || !waitFor(ctx, changes, idle) {
			return nil //nolint:nilerr // the user ended it
		}
	}
}

// waitFor waits for a change, or for so long, 0 for ever. It returns false if the context ends.
func waitFor(ctx context.Context, changes <-chan struct{}, most time.Duration) bool {
	var late <-chan time.Time
	if most > 0 {
		late = time.After(most)
	}
	select {
	case <-changes:
	case <-late:
	case <-ctx.Done():
		return false
	}
	return true
}

// idle returns how long nothing is done if nothing changes. 0 means for ever.
func (r *showRun) idle() time.Duration {
	if r.screen().Live {
		return redraw
	}
	return 0
}

// tell draws the picture, or writes what has changed.
func (r *showRun) tell(live *picture.Live, last, now *cluster.Summary) error {
	if screen := r.screen(); screen.Live {
		return live.Redraw(screen, r.picture(now))
	}
	lines := []string{overview.Line(now)}
	if last != nil {
		lines = overview.Changes(last, now)
	}
	unread := now.Unread
	if last != nil {
		unread = slices.DeleteFunc(slices.Clone(unread), func(u text.Unread) bool { return slices.Contains(last.Unread, u) })
	}
	for _, sentence := range text.Sentences(unread) {
		lines = append(lines, "Note: "+sentence)
	}
	for _, line := range lines {
		if err := r.say("%s %s", now.Now.Format(time.TimeOnly), line); err != nil {
			return err
		}
	}
	return nil
}
