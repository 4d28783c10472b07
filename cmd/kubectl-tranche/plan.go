package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

const planLong = `Print what a PartitionPlan would do, without changing anything: its nodes in their
order and steps, the pods that would be evicted, those that cannot be and why, and
how long it would take by the durations of earlier switches. To create the plan, use
kubectl apply.

FILE has the PartitionPlan. It can have its PartitionProfile, too; otherwise the one
in the cluster is used. Whether pods can be evicted is found out by dry runs, each for
itself: a disruption budget may allow one of two pods.

Requires permission to list Nodes, GPUNodes, PartitionPlans, PartitionProfiles and
ResourceClaims, and to create evictions. With permission to get pods, it says which
no controller replaces.`

type planFlags struct {
	file string
	// maxUnavailable is as it was given, unavailable what that means.
	maxUnavailable string
	unavailable    intstr.IntOrString
}

func newPlanCommand(o *options) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:     "plan -f FILE",
		Short:   "Print what a partition plan would do",
		Long:    planLong,
		Args:    cobra.NoArgs,
		PreRunE: f.check,
		RunE: o.connected(func(ctx context.Context, s *session, _ []string) error {
			p, own, err := readPlan(o.in, f.file)
			if err != nil {
				return err
			}
			return (&planRun{session: s, flags: f, plan: p, own: own}).run(ctx)
		}),
	}
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "file with the plan, - for standard input")
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	cmd.Flags().StringVar(&f.maxUnavailable, "max-unavailable", "1", "the chart's controller.maxUnavailable (number or percentage), for a plan without its own")
	return cmd
}

func (f *planFlags) check(*cobra.Command, []string) error {
	if f.file == "" {
		return errors.New("name the file of the plan: kubectl tranche plan -f FILE")
	}
	var err error
	if f.unavailable, err = rollout.ParseLimit(f.maxUnavailable, 1); err != nil {
		return fmt.Errorf("--max-unavailable %w", err)
	}
	return nil
}

// readPlan reads the plan in a file, and the profiles beside it. Other objects are ignored.
func readPlan(in io.Reader, file string) (*v1beta1.PartitionPlan, []v1beta1.PartitionProfile, error) {
	data, err := readFile(in, file)
	if err != nil {
		return nil, nil, err
	}
	var plan *v1beta1.PartitionPlan
	var profiles []v1beta1.PartitionProfile
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var kind metav1.TypeMeta
		if err == nil {
			err = sigsyaml.Unmarshal(document, &kind)
		}
		switch {
		case err != nil:
		case kind.Kind == v1beta1.PlanKind && plan != nil:
			err = errors.New("there are two PartitionPlans; give one")
		case kind.Kind == v1beta1.PlanKind:
			plan = &v1beta1.PartitionPlan{}
			err = sigsyaml.UnmarshalStrict(document, plan)
		case kind.Kind == v1beta1.ProfileKind:
			var p v1beta1.PartitionProfile
			if err = sigsyaml.UnmarshalStrict(document, &p); err == nil {
				_, err = profile.FromRules(p.Name, p.Spec.Rules)
			}
			profiles = append(profiles, p)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if plan == nil {
		return nil, nil, fmt.Errorf("%s has no %s", file, v1beta1.PlanKind)
	}
	return plan, profiles, nil
}

type planRun struct {
	*session
	flags planFlags
	plan  *v1beta1.PartitionPlan
	own   []v1beta1.PartitionProfile
	notes []string
	// unread is what could not be read or tried.
	unread []text.Unread
}

func (r *planRun) run(ctx context.Context) error {
	if err := r.checked(ctx); err != nil {
		return err
	}
	in, err := r.input(ctx)
	if err != nil {
		return err
	}
	f, err := rollout.Predict(in)
	if err != nil {
		return fmt.Errorf("PartitionPlan %s: %w", r.plan.Name, err)
	}
	if err := r.fill(ctx, &f, in); err != nil {
		return err
	}
	if r.plan.Spec.Strategy.MaxUnavailable == nil {
		r.notes = append(r.notes, fmt.Sprintf("The plan has no maxUnavailable. The forecast assumes controller.maxUnavailable=%s of the chart; --max-unavailable gives another value.", &r.flags.unavailable))
	}
	if err := f.Estimate(in); err != nil {
		return fmt.Errorf("PartitionPlan %s: spec.strategy.windows: %w", r.plan.Name, err)
	}
	f.Unread = r.unread
	return r.show(f, func(p *picture.Page) { picture.DrawForecast(p, f, r.notes, in.Now) })
}

// checked checks the plan by a dry run of the API server.
func (r *planRun) checked(ctx context.Context) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.PlanKind,
		"metadata": map[string]any{"name": r.plan.Name}, "spec": r.plan.Spec,
	})
	if err != nil {
		return fmt.Errorf("write PartitionPlan %s: %w", r.plan.Name, err)
	}
	_, err = r.Ours.PartitionPlans().Patch(ctx, r.plan.Name, types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: "kubectl-tranche", Force: ptr.To(true), DryRun: []string{metav1.DryRunAll},
	})
	switch {
	case apierrors.IsForbidden(err):
		r.unread = append(r.unread, text.Unread{
			Verb: "patch", Resource: "partitionplans.tranche.dev", Consequence: "the API server has not checked the plan",
		}.Refused())
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve PartitionPlans: install the chart with its CustomResourceDefinitions: %w", err)
	case err != nil:
		return fmt.Errorf("check PartitionPlan %s by a dry run: %w", r.plan.Name, err)
	}
	return nil
}

// input reads what the forecast is made of.
func (r *planRun) input(ctx context.Context) (in rollout.ForecastInput, err error) {
	in = rollout.ForecastInput{Plan: r.plan, Unavailable: r.flags.unavailable, Now: r.now()}
	if in.Others, err = read.All[v1beta1.PartitionPlan](ctx, r, ""); err != nil {
		return in, fmt.Errorf("list PartitionPlans: %w", err)
	}
	// What a file says of age and status may be of another plan.
	r.plan.CreationTimestamp, r.plan.Status = metav1.Time{}, v1beta1.PartitionPlanStatus{}
	for i := range in.Others {
		if p := &in.Others[i]; p.Name == r.plan.Name {
			r.plan.CreationTimestamp, r.plan.Status = p.CreationTimestamp, p.Status
		}
	}
	if in.Target, err = r.target(ctx); err != nil {
		return in, err
	}
	if in.Nodes, err = read.All[corev1.Node](ctx, r, ""); err != nil {
		return in, fmt.Errorf("list Nodes: %w", err)
	}
	if in.GPUNodes, err = read.All[v1beta1.GPUNode](ctx, r, ""); err != nil {
		return in, fmt.Errorf("list GPUNodes: %w", err)
	}
	return in, nil
}

// target returns what the nodes would get: the profile in the file, or the one in the cluster.
func (r *planRun) target(ctx context.Context) (v1beta1.ProfileSnapshot, error) {
	name := r.plan.Spec.ProfileName
	var to v1beta1.ProfileSnapshot
	var rules []v1beta1.Rule
	found := false
	for i := range r.own {
		if r.own[i].Name == name {
			rules, found = r.own[i].Spec.Rules, true
		}
	}
	if !found {
		p, err := r.Ours.PartitionProfiles().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return to, fmt.Errorf("PartitionProfile %s, which PartitionPlan %s names, exists neither in %s nor in the cluster", name, r.plan.Name, r.flags.file)
		case err != nil:
			return to, fmt.Errorf("read PartitionProfile %s: %w", name, err)
		}
		rules = p.Spec.Rules
	}
	to = profile.Snapshot(name, rules, rollout.NewestHash(r.plan)...)
	to.Source, to.PlanName = v1beta1.FromPlan, r.plan.Name
	return to, nil
}
