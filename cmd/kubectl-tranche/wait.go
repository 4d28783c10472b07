package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

// errNotApplied ends the program with an error after a switch that did not succeed.
var errNotApplied = errors.New("the profile is not applied")

// wait prints each step until the profile is applied; empty: the one that applies
// without the label.
func (r *profileRun) wait(ctx context.Context, profile string) error {
	ctx, cancel := context.WithTimeout(ctx, r.flags.timeout)
	defer cancel()
	last, live := "", terminal.Live{Out: r.out}
	_, err := watchtools.UntilWithSync(ctx, client.ListWatch(r.ours.GPUNodes(), r.node), &v1alpha1.GPUNode{}, nil, func(e watch.Event) (bool, error) {
		n, ok := e.Object.(*v1alpha1.GPUNode)
		switch {
		case !ok || n.Name != r.node:
			return false, nil
		case e.Type == watch.Deleted:
			return false, fmt.Errorf("GPUNode %s was deleted", r.node)
		}
		far := cluster.ProgressOf(n)
		done, err := arrived(far, profile)
		if profile != "" && far.KeptReason == names.ReasonProfileNotFound {
			// It may be another profile, that of before the label was changed.
			err = r.known(ctx, profile)
		}
		if done || err != nil {
			return done, err
		}
		line := r.step(far, profile)
		if line == last {
			return false, nil
		}
		last = line
		return false, r.tell(&live, line)
	})
	switch {
	case err == nil && profile == "":
		return r.say("The profile without the label is applied on %s.", r.node)
	case err == nil:
		return r.say("Profile %s is applied on %s.", profile, r.node)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w after %s; the switch goes on: kubectl tranche profile %s shows it", errNotApplied, r.flags.timeout, r.node)
	case ctx.Err() != nil:
		return fmt.Errorf("%w yet; the switch goes on: kubectl tranche profile %s shows it", errNotApplied, r.node)
	}
	return err
}

// tell writes a step: on a terminal in place of the one before.
func (r *profileRun) tell(live *terminal.Live, line string) error {
	if !r.screen.Live {
		return r.say("%s", line)
	}
	p := terminal.Page{Screen: r.screen}
	p.Wrap("", line, terminal.Normal)
	live.On(r.screen)
	return live.Draw(p.String())
}

// noticed tells whether the controller has taken notice of the label.
func noticed(far cluster.Progress, profile string) bool {
	label := names.LabelProfile + "="
	if profile == "" {
		return !strings.HasPrefix(far.Label, label)
	}
	return far.Desired == profile && far.Label == label+profile
}

// arrived tells whether the profile is applied, or why it will not be.
func arrived(far cluster.Progress, profile string) (bool, error) {
	if far.Conflict != "" {
		return false, fmt.Errorf("%w: %s", errNotApplied, far.Conflict)
	}
	if far.KeptReason == names.ReasonDisabled {
		return false, fmt.Errorf("%w: %s", errNotApplied, far.Kept)
	}
	switch {
	case !noticed(far, profile):
		return false, nil
	case far.UpToDate:
		return true, nil
	case far.State == v1alpha1.Failed && far.To == far.Desired:
		return false, fmt.Errorf("%w (%s): %s; it is retried %s", errNotApplied, far.Reason, far.Message, far.Again())
	}
	return false, nil
}

// step is a line of progress. It has no times in it, so that it changes only when
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
	return fmt.Sprintf("%s: %s.", far.State, far.Doing)
}
