package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/picture"
)

var errNotComplete = errors.New("the rollout is not complete")

func newRolloutStatusCommand(o *options) *cobra.Command {
	follow, timeout := true, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "status PLAN...",
		Short: "Follow a plan until it is complete or stops",
		Long: "Show the progress of a PartitionPlan until it is complete or stops: on a terminal as a bar,\n" +
			"otherwise a line for each change.\n\n" +
			"The exit code is 0 when the newest revision is complete, 2 when the plan has stopped, was\n" +
			"undone or cannot be carried out, and 3 when it takes longer than --timeout. Nodes that failed,\n" +
			"within spec.strategy.maxFailures, or that are not ready can be missing. With --watch=false or\n" +
			"--output, the exit code says only whether the plan was read.\n\n" +
			"Requires permission to get, list and watch PartitionPlans.",
		Args: atLeastOne("plan", "rollout status PLAN..."),
		RunE: o.connected(func(ctx context.Context, s *session, args []string) error {
			if s.forPrograms() || !follow {
				return showPlans(ctx, s, args)
			}
			var errs []error
			for _, arg := range args {
				errs = append(errs, (&rolloutRun{session: s, plan: planName(arg)}).follow(ctx, timeout))
			}
			return errors.Join(errs...)
		}),
	}
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	cmd.Flags().BoolVarP(&follow, "watch", "w", true, "follow the plan until its end")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: no limit")
	return cmd
}

func showPlans(ctx context.Context, s *session, args []string) error {
	read := func(arg string) (*v1beta1.PartitionPlan, error) {
		return (&rolloutRun{session: s, plan: planName(arg)}).read(ctx)
	}
	return showEach(s, args, read, func(p *picture.Page, plan *v1beta1.PartitionPlan) {
		far, _ := cluster.RolloutOf(plan)
		picture.DrawRollout(p, far, s.now())
	})
}

func (r *rolloutRun) follow(ctx context.Context, timeout time.Duration) error {
	if _, err := r.read(ctx); err != nil {
		return err
	}
	live := picture.Live{Out: r.out}
	waits := waits{what: "PartitionPlan", name: r.plan, most: timeout, failure: errNotComplete, shows: "kubectl tranche rollout status " + r.plan}
	return until(ctx, r, waits, func(p *v1beta1.PartitionPlan) (bool, error) {
		far, known := cluster.RolloutOf(p)
		if !known {
			far.Reason, far.Message = "", "waiting for the controller"
		}
		draw := func(p *picture.Page) { picture.DrawRollout(p, far, r.now()) }
		if err := live.Tell(r.screen(), far.Line(), draw); err != nil {
			return false, err
		}
		return ended(far)
	})
}

// ended reports whether a rollout is complete, or why it will not be.
func ended(far cluster.Rollout) (bool, error) {
	switch far.Result {
	case "":
		return false, nil
	case cluster.RolloutComplete:
		return true, nil
	}
	return false, negative(fmt.Errorf("%w (%s): %s", errNotComplete, far.Reason, strings.TrimSuffix(far.Message, ".")))
}
