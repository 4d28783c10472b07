package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
)

func newProfilesCommand(o *options) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "List the partition profiles that fit the nodes, and how many want and follow each",
		Long: "List the PartitionProfiles, their rules, how many nodes each fits by the models of their GPUs, and how\n" +
			"many want and follow it. Profiles that fit no node are left out, but for JSON and YAML.\n\n" +
			"Requires permission to list PartitionProfiles and GPUNodes, and ResourceSlices to tell what fits.",
		Args: cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, s *session, _ []string) error { return showProfiles(ctx, s, all) }),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also show profiles that fit no node")
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	return cmd
}

func showProfiles(ctx context.Context, s *session, whole bool) error {
	profiles, err := s.listProfiles(ctx)
	if err != nil {
		return err
	}
	var nodes []v1beta1.GPUNode
	if _, err := read.Into(ctx, s, read.GPUNodes, "", &nodes); err != nil {
		return fmt.Errorf("list GPUNodes: %w", err)
	}
	all := cluster.Profiles(profiles, nodes)
	var in cluster.Objects
	unread, err := read.Into(ctx, s, read.Slices, "", &in.Slices)
	if err != nil {
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	unknown, err := cluster.New(in).FitProfiles(all)
	if err != nil {
		return err
	}
	var notes []text.Unread
	if unread.Consequence = "which profiles fit is not known"; unread.Message != "" {
		notes = append(notes, unread)
	}
	if len(unknown) > 0 {
		notes = append(notes, text.Unread{Message: "there is no table of " + strings.Join(unknown, ", "), Consequence: "which profiles fit these GPUs is not known"})
	}
	shown := all
	if !whole && len(notes) == 0 && len(in.Slices) > 0 {
		shown = slices.DeleteFunc(slices.Clone(all), func(p cluster.Profile) bool { return len(p.Fitting)+len(p.Desired)+len(p.Applied) == 0 })
	}
	return s.show(all, func(p *picture.Page) { picture.DrawProfiles(p, shown, len(all)-len(shown), notes...) })
}

func newClassesCommand(o *options) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "List the device classes that GPUs offer, and on how many GPUs each",
		Long: "List the DeviceClasses for Tranche's devices: on how many GPUs such a device is published, also if it is\n" +
			"held, the extended resource that requests it, and what a claim gets. Classes that no GPU offers are left\n" +
			"out, but for JSON and YAML.\n\n" +
			"Requires permission to list DeviceClasses and ResourceSlices.",
		Args: cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, s *session, _ []string) error { return showClasses(ctx, s, all) }),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also show classes that no GPU offers")
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	return cmd
}

func showClasses(ctx context.Context, s *session, whole bool) error {
	var in cluster.Objects
	var err error
	if in.Classes, err = read.All[resourceapi.DeviceClass](ctx, s, ""); err != nil {
		return fmt.Errorf("list DeviceClasses: %w", err)
	}
	if in.Slices, err = read.List[resourceapi.ResourceSlice](ctx, s, "", read.Slices.Only); err != nil {
		return slicesError(err)
	}
	all := cluster.New(in).ClassGPUs(ctx)
	shown := all
	if !whole {
		shown = slices.DeleteFunc(slices.Clone(all), func(c cluster.Class) bool { return c.GPUCount == 0 })
	}
	return s.show(all, func(p *picture.Page) { picture.DrawClasses(p, shown, len(all)-len(shown)) })
}

func profileNames(profiles []v1beta1.PartitionProfile) []string {
	names := lists.Map(profiles, func(p v1beta1.PartitionProfile) string { return p.Name })
	slices.Sort(names)
	return names
}

// newSwitchesCommand shows the history of a node.
func newSwitchesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switches NODE...",
		Short: "Show the profile switches of nodes, how long they took, and why they failed",
		Long: "Show the switch in progress of each node, and the last ten finished ones: how long they took\n" +
			"from the first taint, how many pods were evicted, and why they failed.\n\n" +
			"Requires permission to get GPUNodes.",
		Args: atLeastOne("node", "switches NODE..."),
		RunE: o.connected(showSwitches),
	}
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	return cmd
}

func showSwitches(ctx context.Context, s *session, args []string) error {
	return showEach(s, args, func(arg string) (*v1beta1.GPUNode, error) { return s.gpuNode(ctx, nodeName(arg)) },
		func(p *picture.Page, n *v1beta1.GPUNode) { picture.DrawSwitches(p, n, s.now()) })
}

func (c connection) gpuNode(ctx context.Context, node string) (*v1beta1.GPUNode, error) {
	n, err := c.Ours.GPUNodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("GPUNode %s does not exist; the plugin on the node creates it (see kubectl get gpunodes): %w", node, err)
	case err != nil:
		return nil, fmt.Errorf("read GPUNode %s: %w", node, err)
	}
	n.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(v1beta1.NodeKind))
	n.ManagedFields = nil
	return n, nil
}
