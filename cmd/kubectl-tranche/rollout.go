package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

const rolloutExamples = `  # Follow a plan until it is complete or stops
  kubectl tranche rollout status canary

  # Start no more nodes, and go on
  kubectl tranche rollout pause canary
  kubectl tranche rollout resume canary

  # Approve the step that the plan waits for
  kubectl tranche rollout approve canary

  # Go back to the revision before
  kubectl tranche rollout undo canary`

func newRolloutCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rollout status|pause|resume|approve|undo PLAN",
		Short:   "Follow, pause, resume, approve or undo a partition plan",
		Example: rolloutExamples,
		Args:    knownCommand,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(newRolloutStatusCommand(o))
	for _, c := range []struct{ use, short, long string }{
		{"pause PLAN", "Start no more nodes", "Set spec.paused of a PartitionPlan: no more nodes start. Those that have started go on."},
		{"resume PLAN", "Continue a plan that is paused or has stopped",
			"Unset spec.paused of a PartitionPlan. If the plan has stopped because nodes failed, accept these\nfailures: it stops again when more nodes than spec.strategy.maxFailures fail after that."},
		{"approve PLAN", "Approve the step that a plan waits for", "Set spec.approved of a PartitionPlan, so that the next step begins."},
		{"undo PLAN", "Go back to an earlier revision",
			"Set spec.rejected of a PartitionPlan: its nodes go back, without steps and\nwindows. A later change of the profile is rolled out again."},
	} {
		cmd.AddCommand(newRolloutEdit(o, c.use, c.short, c.long))
	}
	return cmd
}

type rolloutFlags struct {
	step     int32
	revision int64
}

func newRolloutEdit(o *options, use, short, long string) *cobra.Command {
	var f rolloutFlags
	what, _, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + "\n\nRequires permission to get and patch PartitionPlans.",
		Args: exactlyOne("plan", "rollout "+use),
	}
	cmd.RunE = o.connected(func(ctx context.Context, s *session, args []string) error {
		return (&rolloutRun{session: s, plan: planName(args[0]), flags: f}).edit(ctx, what)
	})
	switch what {
	case "approve":
		cmd.Flags().Int32Var(&f.step, "step", 0, "approve the steps up to this one (default: the one that the plan waits for)")
	case "undo":
		cmd.Flags().Int64Var(&f.revision, "to-revision", 0, "revision to go back to (default: the last complete one)")
	}
	return cmd
}

// exactlyOne refuses everything but the name of one object.
func exactlyOne(what, use string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one %s: kubectl tranche %s", what, use)
		}
		return nil
	}
}

// planName allows for names as kubectl prints them.
func planName(arg string) string {
	return bareName(arg, "partitionplan", "partitionplans", "partitionplan.tranche.dev")
}

// bareName returns the name in KIND/NAME, if the kind is one of these.
func bareName(arg string, kinds ...string) string {
	if kind, name, found := strings.Cut(arg, "/"); found && slices.Contains(kinds, kind) {
		return name
	}
	return arg
}

type rolloutRun struct {
	*session
	plan  string
	flags rolloutFlags
}

func (r *rolloutRun) read(ctx context.Context) (*v1beta1.PartitionPlan, error) {
	p, err := r.Ours.PartitionPlans().Get(ctx, r.plan, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("PartitionPlan %s does not exist (see kubectl get partitionplans): %w", r.plan, err)
	case err != nil:
		return nil, fmt.Errorf("read PartitionPlan %s: %w", r.plan, err)
	}
	return p, nil
}

func (r *rolloutRun) edit(ctx context.Context, what string) error {
	p, err := r.read(ctx)
	if err != nil {
		return err
	}
	spec, said, err := map[string]func(*v1beta1.PartitionPlan) (map[string]any, string, error){
		"pause": pause, "resume": resume, "approve": r.approve, "undo": r.undo,
	}[what](p)
	if err != nil {
		return err
	}
	if spec != nil {
		patch, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			return fmt.Errorf("patch of PartitionPlan %s: %w", p.Name, err)
		}
		if _, err := r.Ours.PartitionPlans().Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("change PartitionPlan %s: %w", p.Name, err)
		}
	}
	return r.say("%s\nTo see its progress: kubectl tranche rollout status %s", said, p.Name)
}

func pause(p *v1beta1.PartitionPlan) (map[string]any, string, error) {
	if p.Spec.Paused {
		return nil, p.Name + " is paused already.", nil
	}
	return map[string]any{"paused": true}, "Paused " + p.Name + ". Nodes that are being switched go on.", nil
}

func resume(p *v1beta1.PartitionPlan) (map[string]any, string, error) {
	spec, said := map[string]any{}, ""
	if p.Spec.Paused {
		spec["paused"], said = nil, "Resumed "+p.Name+"."
	}
	if s := p.Status.Stopped; rollout.Stopped(&p.Status) {
		spec["accepted"] = v1beta1.AcceptedFailures{RevisionReference: rollout.Target(&p.Status).RevisionReference, FailedNodeCount: s.FailedNodeCount}
		said = fmt.Sprintf("Resumed %s in spite of %d failed nodes.", p.Name, s.FailedNodeCount)
	}
	if said == "" {
		return nil, p.Name + " is neither paused nor stopped.", nil
	}
	return spec, said, nil
}

func (r *rolloutRun) approve(p *v1beta1.PartitionPlan) (map[string]any, string, error) {
	far, _ := cluster.RolloutOf(p)
	target, step := rollout.Target(&p.Status), r.flags.step
	switch steps := int32(len(p.Spec.Strategy.Steps)); {
	case target == nil:
		return nil, "", fmt.Errorf("PartitionPlan %s gives its nodes no revision, so there is nothing to approve", p.Name)
	case step < 0 || step > steps:
		return nil, "", fmt.Errorf("--step %d: PartitionPlan %s has the steps 1 to %d", step, p.Name, steps)
	case step == 0 && far.Reason != names.ReasonWaitsForApproval:
		return nil, "", fmt.Errorf("PartitionPlan %s does not wait for an approval (%s); to approve a step before it is reached, use --step", p.Name, far.Line())
	case step == 0:
		step = far.Step
	}
	return map[string]any{"approved": v1beta1.StepApproval{RevisionReference: target.RevisionReference, Step: step}},
		fmt.Sprintf("Approved step %d of revision %d of %s.", step, target.Revision, p.Name), nil
}

func (r *rolloutRun) undo(p *v1beta1.PartitionPlan) (map[string]any, string, error) {
	newest := rollout.Revision(&p.Status, p.Status.Revision)
	if newest == nil {
		return nil, "", fmt.Errorf("PartitionPlan %s has no revision yet, so there is nothing to undo", p.Name)
	}
	var fallback *v1beta1.RevisionReference
	to := rollout.LastComplete(&p.Status)
	if given := r.flags.revision; given != 0 {
		if to = rollout.Revision(&p.Status, given); to == nil || to == newest {
			var known []string
			for i := range p.Status.History[1:] {
				known = append(known, fmt.Sprint(p.Status.History[i+1].Revision))
			}
			return nil, "", fmt.Errorf("--to-revision %d: the earlier revisions of PartitionPlan %s are: %s", given, p.Name, cmp.Or(strings.Join(known, ", "), "none"))
		}
		fallback = &to.RevisionReference
	}
	said := fmt.Sprintf("%s gives its nodes no profile any more: no revision before %d was complete.", p.Name, newest.Revision)
	if to != nil {
		said = fmt.Sprintf("%s goes back from revision %d to revision %d.", p.Name, newest.Revision, to.Revision)
	}
	// A merge patch keeps what it does not name.
	rejected := map[string]any{"revision": newest.Revision, "revisionHash": newest.RevisionHash, "fallback": fallback}
	return map[string]any{"rejected": rejected}, said, nil
}
