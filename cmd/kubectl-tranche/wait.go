package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
)

// controllerPods lists the pods of the controller.
const controllerPods = "kubectl get pods -A -l app.kubernetes.io/component=controller"

var errNotApplied = errors.New("the profile is not applied")

// waits says for what is waited, and what is said if it takes too long.
type waits struct {
	// what is the kind, name the object that is watched.
	what, name string
	// most is how long to wait. 0: there is no limit.
	most    time.Duration
	failure error
	// shows is the command that shows how it goes on.
	shows string
}

// until calls done with an object now and whenever it changes, until it returns true or an error.
func until[T any, P interface {
	read.Object[T]
	metav1.Object
}](ctx context.Context, from read.Source, w waits, done func(P) (bool, error)) error {
	if w.most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.most)
		defer cancel()
	}
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()}
	_, err := watchtools.UntilWithSync(ctx, from.ListWatch(P(new(T)), "", only), P(new(T)), nil, func(e watch.Event) (bool, error) {
		o, ok := e.Object.(P)
		switch {
		case !ok || o.GetName() != w.name:
			return false, nil
		case e.Type == watch.Deleted:
			return false, fmt.Errorf("%s %s was deleted", w.what, w.name)
		}
		return done(o)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return coded{fmt.Errorf("%w after %s; it goes on: %s shows it", w.failure, w.most, w.shows), exitUnfinished}
	case ctx.Err() != nil:
		return coded{fmt.Errorf("%w yet; it goes on: %s shows it", w.failure, w.shows), exitUnfinished}
	}
	return err
}

// wait prints each step until the profile is applied; if profile is empty, the one that applies
// without the label.
func (r *profileRun) wait(ctx context.Context, profile string) error {
	live := picture.Live{Out: r.out}
	waits := waits{what: "GPUNode", name: r.node, most: r.flags.timeout, failure: errNotApplied, shows: "kubectl tranche node " + r.node}
	seen := false
	err := until(ctx, r, waits, func(n *v1beta1.GPUNode) (bool, error) {
		far := cluster.ProgressOf(n)
		seen = noticed(far, profile)
		done, err := arrived(far, profile)
		if profile != "" && far.KeptReason == names.ReasonProfileNotFound {
			// It may be another profile, that of before the label was changed.
			_, err = r.find(ctx, profile)
			err = negative(err)
		}
		if done || err != nil {
			return done, err
		}
		return false, r.tell(&live, r.step(far, profile))
	})
	switch {
	case err != nil && exitCode(err) == exitUnfinished && !seen:
		return coded{fmt.Errorf("%w, and the controller has not noticed the label; see whether it runs: %s", errNotApplied, controllerPods), exitUnfinished}
	case err != nil:
		return err
	case profile == "":
		return r.say("The profile without the label is applied on %s.", r.node)
	}
	return r.say("Profile %s is applied on %s.", profile, r.node)
}

// tell writes a step: on a terminal in place of the one before.
func (r *profileRun) tell(live *picture.Live, line string) error {
	return live.Tell(r.screen(), line, func(p *picture.Page) { p.Wrap("", line, picture.Normal) })
}

// noticed reports whether the controller has taken notice of the label.
func noticed(far cluster.Progress, profile string) bool {
	label := names.LabelProfile + "="
	if profile == "" {
		return !strings.HasPrefix(far.Label, label)
	}
	return far.Desired.ProfileName == profile && far.Label == label+profile
}

// arrived reports whether the profile is applied, or why it will not be.
func arrived(far cluster.Progress, profile string) (bool, error) {
	if far.Conflict != "" {
		return false, negative(fmt.Errorf("%w: %s", errNotApplied, far.Conflict))
	}
	if far.KeptReason == names.ReasonPaused {
		return false, negative(fmt.Errorf("%w: %s", errNotApplied, far.Kept))
	}
	switch {
	case !noticed(far, profile):
		return false, nil
	case far.UpToDate:
		return true, nil
	case far.State == v1beta1.Failed && far.Switch.To.ProfileName == far.Desired.ProfileName:
		return false, negative(fmt.Errorf("%w (%s): %s; it is retried %s", errNotApplied, far.Switch.Reason, far.Switch.Message, far.Again()))
	}
	return false, nil
}

// maxDoing is the maximum length of what a step does, in bytes. GPUNodes have all of it.
const maxDoing = 300

// step returns a line of progress. It has no times in it, so that it changes only when
// something happens.
func (r *profileRun) step(far cluster.Progress, profile string) string {
	switch {
	case far.Pending != "" && !far.Switching():
		return cluster.Sentence(far.Pending)
	case !noticed(far, profile) && !far.Switching():
		return "Waiting for the controller."
	case !far.Switching():
		return "Waiting for the switch to start."
	case far.Doing == "":
		return string(far.State) + "."
	}
	return fmt.Sprintf("%s: %s.", far.State, text.Cut(strings.TrimSuffix(far.Doing, "."), maxDoing))
}
