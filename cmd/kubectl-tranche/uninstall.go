package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// newUninstallCommand removes an installation whose tool runs no Helm hooks.
func newUninstallCommand(o *options, out io.Writer) *cobra.Command {
	var force, check bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Tranche from the nodes, or check whether it can be removed and what is left",
		Long: "Does what `helm uninstall` does before it deletes the objects of the release, and then deletes the DaemonSet and the Deployments, " +
			"for tools that run no Helm hooks. It refuses while pods hold GPUs. Remove the remaining objects with the tool that installed them.\n\n" +
			"With --check, it changes nothing: it lists what of Tranche is in the cluster, and fails if pods hold GPUs or GPUs are being changed.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			api, err := o.config.ToRESTConfig()
			if err != nil {
				return err
			}
			objects, err := metadata.NewForConfig(api)
			if err != nil {
				return fmt.Errorf("client for the API server: %w", err)
			}
			progress := read.ProgressOf(cmd.Context())
			defer progress.Done()
			config := uninstall.Config{Client: c.kubernetes, Ours: c.ours, Objects: objects, Force: force, Deadline: timeout, Out: clearing{out, progress}, Progress: progress.Say}
			return uninstallTranche(cmd.Context(), config, *o.config.Namespace, check)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "change nothing: list what of Tranche is in the cluster, and fail if it cannot be uninstalled now")
	flags.BoolVar(&force, "force", false, "continue although pods hold GPUs, GPUs are being changed, or nodes do not answer")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait")
	cmd.MarkFlagsMutuallyExclusive("check", "force")
	return cmd
}

// uninstallTranche removes the installation in a namespace, empty: the only one in the
// cluster.
func uninstallTranche(ctx context.Context, config uninstall.Config, namespace string, check bool) error {
	if _, err := config.Find(ctx, namespace); err != nil {
		return err
	}
	if check {
		return uninstall.Check(ctx, config)
	}
	return uninstall.Run(ctx, config)
}
