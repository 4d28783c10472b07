package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/picture"
)

func newProfilesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "List the partition profiles, and on how many nodes each is desired and applied",
		Long: "List the PartitionProfiles, their rules, and on how many nodes each is desired and applied.\n\n" +
			"Requires permission to list PartitionProfiles and GPUNodes.",
		Args: cobra.NoArgs,
		RunE: o.connected(showProfiles),
	}
	addOutput(cmd, "", "json", "yaml")
	return cmd
}

func showProfiles(ctx context.Context, s *session, _ []string) error {
	profiles, err := s.listProfiles(ctx)
	if err != nil {
		return err
	}
	var nodes []v1beta1.GPUNode
	if _, err := read.Into(ctx, s, read.GPUNodes, "", &nodes); err != nil {
		return fmt.Errorf("list GPUNodes: %w", err)
	}
	all := cluster.Profiles(profiles, nodes)
	return s.show(all, func(p *picture.Page) { picture.DrawProfiles(p, all) })
}

func profileNames(profiles []v1beta1.PartitionProfile) []string {
	names := lists.Map(profiles, func(p v1beta1.PartitionProfile) string { return p.Name })
	slices.Sort(names)
	return names
}

// newSwitchesCommand shows the history of a node.
func newSwitchesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switches NODE",
		Short: "Show the profile switches of a node, how long they took, and why they failed",
		Long: "Show the node's switch in progress, and the last ten finished ones: how long they took\n" +
			"from the first taint, how many pods were evicted, and why they failed.\n\n" +
			"Requires permission to get GPUNodes.",
		Args: exactlyOne("node", "switches NODE"),
		RunE: o.connected(showSwitches),
	}
	addOutput(cmd, "", "json", "yaml")
	return cmd
}

func showSwitches(ctx context.Context, s *session, args []string) error {
	n, err := s.gpuNode(ctx, nodeName(args[0]))
	if err != nil {
		return err
	}
	return s.show(n, func(p *picture.Page) { picture.DrawSwitches(p, n, s.now()) })
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
