package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// newUninstallCommand removes an installation whose tool runs no Helm hooks.
func newUninstallCommand(o *options) *cobra.Command {
	var force, check bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Tranche from the nodes, or check whether it can be removed and what is left",
		Long: "Does what `helm uninstall` does before it deletes the objects of the release, and then deletes the DaemonSet and the Deployments, " +
			"for tools that run no Helm hooks. It refuses while pods hold GPUs. Remove the remaining objects with the tool that installed them.\n\n" +
			"With --check, it changes nothing: it lists what of Tranche is in the cluster. " +
			"The exit code is 2 if Tranche cannot be uninstalled now: pods hold GPUs, GPUs are being changed, or plugins do not answer. It is 3 if --timeout or Ctrl-C ended the wait.",
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if outputOf(cmd) != "" && !check {
				return errors.New("-o is for what --check finds: add --check")
			}
			return nil
		},
		RunE: o.connected(func(ctx context.Context, s *session, _ []string) error {
			api, err := o.config.ToRESTConfig()
			if err != nil {
				return err
			}
			objects, err := metadata.NewForConfig(api)
			if err != nil {
				return fmt.Errorf("client for the API server: %w", err)
			}
			progress := read.ProgressOf(ctx)
			defer progress.Done()
			config := uninstall.Config{Client: s.Kubernetes, Ours: s.Ours, Objects: objects, Force: force, Deadline: timeout, Out: clearing{s.out, progress}, Progress: progress.Say}
			if _, err := config.Find(ctx, s.asked); err != nil {
				return err
			}
			if check {
				return s.check(ctx, config)
			}
			return unfinished(ctx, refused(uninstall.Run(ctx, config)))
		}),
	}
	addOutput(cmd, "", "json", "yaml")
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "change nothing: list what of Tranche is in the cluster, and fail if it cannot be uninstalled now")
	flags.BoolVar(&force, "force", false, "continue although pods hold GPUs, GPUs are being changed, or nodes do not answer")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait; 0: no limit")
	cmd.MarkFlagsMutuallyExclusive("check", "force")
	return cmd
}

func (s *session) check(ctx context.Context, config uninstall.Config) error {
	report, err := uninstall.Check(ctx, config)
	if report == nil {
		return err
	}
	if s.forPrograms() {
		return errors.Join(s.show(report, nil), refused(err))
	}
	_, writeErr := fmt.Fprint(config.Out, report)
	return errors.Join(writeErr, refused(err))
}

// refused marks the error with which an uninstallation refuses.
func refused(err error) error {
	if errors.Is(err, uninstall.ErrRefused) {
		return negative(err)
	}
	return err
}

// unfinished marks the error of a wait that --timeout or Ctrl-C ended.
func unfinished(ctx context.Context, err error) error {
	if errors.Is(err, uninstall.ErrUnfinished) || err != nil && ctx.Err() != nil {
		return coded{err, exitUnfinished}
	}
	return err
}

// clearing writes where there may be a line of progress.
type clearing struct {
	out      io.Writer
	progress read.Progress
}

// Write implements io.Writer.
func (c clearing) Write(text []byte) (int, error) {
	c.progress.Done()
	return c.out.Write(text)
}
