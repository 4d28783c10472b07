package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const setProfileExamples = `  # See which pods a profile would evict
  kubectl tranche set-profile node-a all-balanced --dry-run

  # Set a profile, and wait until it is applied
  kubectl tranche set-profile node-a all-balanced --wait

  # Return to the profile of the GPUNode's spec, of a PartitionPlan, or to "default"
  kubectl tranche set-profile node-a --unset`

const setProfileLong = `Set the partition profile of a node with its label tranche.dev/profile. Pods whose
devices the profile lacks are evicted: --dry-run lists them, and changes nothing.

With --wait, each step is printed. The exit code is 0 when the profile is
applied, 2 when the switch has failed or cannot start, and 3 when it takes
longer than --timeout.

Requires permission to list PartitionProfiles, to get and patch nodes, and to
get GPUNodes. To wait: to list and watch GPUNodes. For --dry-run: to list
ResourceClaims and to create evictions.`

// defaultTimeout is how long --wait waits: the default deadline of a drain, and what
// a reboot takes, twice.
const defaultTimeout = 30 * time.Minute

type profileFlags struct {
	unset, wait, dryRun bool
	timeout             time.Duration
}

func newNodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node NODE...",
		Short: "Show the partition profile of nodes, and the progress of their switches",
		Long: "Show the partition profile of each node, the progress of its switch, how much of its GPU memory and\n" +
			"compute pods request, and the modes of its GPUs.\n\n" +
			"Requires permission to get GPUNodes. With permission to list nodes and pods, it shows requests.",
		Args: atLeastOne("node", "node NODE..."),
		RunE: o.connected(showNodes),
	}
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	return cmd
}

func showNodes(ctx context.Context, s *session, args []string) error {
	return showEach(s, args, func(arg string) (*v1beta1.GPUNode, error) { return s.gpuNode(ctx, nodeName(arg)) },
		func(p *picture.Page, n *v1beta1.GPUNode) {
			requested, unread := s.Requested(ctx, n.Name)
			picture.DrawNode(p, n, requested, unread, s.now())
			s.drawUnnoticed(ctx, p, n)
		})
}

// drawUnnoticed says that the controller has not noticed the label of a node, if the user may read it.
func (s *session) drawUnnoticed(ctx context.Context, p *picture.Page, n *v1beta1.GPUNode) {
	node, err := s.Kubernetes.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	_, controlPlane := node.Labels[controlPlaneLabel]
	label, far := node.Labels[names.LabelProfile], cluster.ProgressOf(n)
	if label == "" || controlPlane || noticed(far, label) || far.KeptReason != "" || far.Overridden != "" {
		return
	}
	p.Wrap("", fmt.Sprintf("The controller has not noticed the label %s=%s of the node. If that persists, see whether it runs: %s",
		names.LabelProfile, label, controllerPods), picture.Yellow)
}

func newSetProfileCommand(o *options) *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:     "set-profile NODE PROFILE",
		Short:   "Set the partition profile of a node",
		Long:    setProfileLong,
		Example: setProfileExamples,
		Args:    cobra.MaximumNArgs(2),
		PreRunE: f.check,
		RunE: o.connected(func(ctx context.Context, s *session, args []string) error {
			return (&profileRun{session: s, node: nodeName(args[0]), flags: f}).set(ctx, append(args, "")[1])
		}),
	}
	cmd.Flags().BoolVar(&f.unset, "unset", false, "remove the node's label")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print which pods would be evicted, and change nothing")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the profile is applied")
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to wait; 0: no limit")
	return cmd
}

func (f *profileFlags) check(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 2 && f.unset:
		return errors.New("--unset removes the label, so it takes no PROFILE")
	case f.dryRun && (f.unset || f.wait):
		return errors.New("--dry-run changes nothing, so it takes neither --unset nor --wait")
	case len(args) == 0, len(args) == 1 && !f.unset:
		return errors.New("name a node and a profile: kubectl tranche set-profile NODE PROFILE, or NODE --unset")
	case len(args) == 2 && args[1] == "":
		return errors.New("PROFILE is empty; to remove the label, use --unset")
	}
	return nil
}

// nodeName allows for names as kubectl prints them.
func nodeName(arg string) string {
	return bareName(arg, "node", "nodes", "gpunode", "gpunodes", "gpunode.tranche.dev")
}

type profileRun struct {
	*session
	node  string
	flags profileFlags
}

// controlPlaneLabel marks the nodes of the control plane, whose label for the profile
// does not count.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// set puts the label on the node, or takes it off where profile is empty.
func (r *profileRun) set(ctx context.Context, profile string) error {
	node, err := r.Kubernetes.CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
	if err != nil {
		return r.unlessInGPUNode(fmt.Errorf("read node %s: %w", r.node, err), profile)
	}
	var to *v1beta1.PartitionProfile
	if profile != "" {
		if to, err = r.find(ctx, profile); err != nil {
			return err
		}
		if _, is := node.Labels[controlPlaneLabel]; is {
			return fmt.Errorf("%s belongs to the control plane, where the label %s is ignored; set the profile in its GPUNode: %s",
				r.node, names.LabelProfile, inGPUNode(r.node, profile))
		}
	}
	n, err := r.gpuNode(ctx, r.node)
	if err != nil && (r.flags.wait || r.flags.dryRun || !apierrors.IsNotFound(err)) {
		return err
	}
	if r.flags.dryRun {
		forecast, unread, err := r.forecastOf(ctx, n, to)
		if err != nil {
			return err
		}
		return r.show(nil, func(p *picture.Page) { picture.DrawSwitchForecast(p, profile, forecast, unread) })
	}
	if err := r.label(ctx, node, profile); err != nil {
		return err
	}
	if n != nil && to != nil && len(to.Spec.Rules) > 0 && !preview.Selects(n, to) {
		if err := r.say("No rule of profile %s selects a GPU of %s: the profile changes nothing there.", profile, r.node); err != nil {
			return err
		}
	}
	switch {
	case n == nil:
		return r.say("GPUNode %s does not exist yet; the profile is applied as soon as the plugin runs on the node.", r.node)
	case n.Spec.Paused && r.flags.wait:
		return negative(fmt.Errorf("spec.paused of GPUNode %s is true, so the node keeps its applied profile; nothing to wait for", r.node))
	case n.Spec.Paused:
		return r.say("spec.paused of GPUNode %s is true, so the node keeps its applied profile.", r.node)
	case r.flags.wait:
		return r.wait(ctx, profile)
	}
	return r.say("To see its progress: kubectl tranche node %s", r.node)
}

// unlessInGPUNode adds, for users who may not label nodes, the other way to set a profile.
func (r *profileRun) unlessInGPUNode(err error, profile string) error {
	if profile == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; with permission to change GPUNodes, and if the node has no label %s, set the profile there: %s", err, names.LabelProfile, inGPUNode(r.node, profile))
}

func inGPUNode(node, profile string) string {
	return fmt.Sprintf(`kubectl patch gpunode %s --type=merge -p '{"spec":{"profileName":"%s"}}'`, node, profile)
}

// find returns a profile, or an error that names those that exist.
func (r *profileRun) find(ctx context.Context, profile string) (*v1beta1.PartitionProfile, error) {
	profiles, err := r.listProfiles(ctx)
	if err != nil {
		return nil, err
	}
	if p := lists.Find(profiles, func(p *v1beta1.PartitionProfile) bool { return p.Name == profile }); p != nil {
		return p, nil
	}
	names := profileNames(profiles)
	if len(names) == 0 {
		return nil, fmt.Errorf("PartitionProfile %s does not exist, and there are no others", profile)
	}
	return nil, fmt.Errorf("PartitionProfile %s does not exist%s Those that fit your GPUs: kubectl tranche profiles", profile, strict.DidYouMean(profile, names))
}

// label changes the node's label, if need be.
func (r *profileRun) label(ctx context.Context, node *corev1.Node, profile string) error {
	old, there := node.Labels[names.LabelProfile]
	var value any // null takes it off
	switch {
	case profile == "" && !there:
		return r.say("%s has no label %s.", r.node, names.LabelProfile)
	case profile != "" && old == profile:
		return r.say("%s already has the label %s=%s.", r.node, names.LabelProfile, profile)
	case profile != "":
		value = profile
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{names.LabelProfile: value}}})
	if err != nil {
		return fmt.Errorf("patch of node %s: %w", r.node, err)
	}
	if _, err := r.Kubernetes.CoreV1().Nodes().Patch(ctx, r.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return r.unlessInGPUNode(fmt.Errorf("label node %s: %w", r.node, err), profile)
	}
	if profile == "" {
		return r.say("Removed the label %s=%s from %s.", names.LabelProfile, old, r.node)
	}
	return r.say("Labelled %s: %s=%s.", r.node, names.LabelProfile, profile)
}
