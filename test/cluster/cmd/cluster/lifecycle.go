package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
	"github.com/tranche-dev/tranche/test/cluster/internal/cluster"
)

// folder adds the flag for the cluster's folder to a command, and returns how
// to open the cluster in it.
func folder(cmd *cobra.Command) func() (*cluster.Cluster, error) {
	dir := cmd.Flags().String("dir", ".cluster", "folder of the cluster")
	return func() (*cluster.Cluster, error) { return cluster.Open(*dir, progress()) }
}

func upCommand() *cobra.Command {
	var options cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and wait until its nodes are ready",
		Args:  cobra.NoArgs,
	}
	open := folder(cmd)
	cmd.Flags().StringSliceVar(&options.Nodes, "nodes", []string{"node-a"}, "names of the nodes")
	cmd.Flags().StringVar(&options.Gates, "gates", "", "feature gates for all components, as A=true,B=false (default: those of the release)")
	cmd.Flags().StringVar(&options.RuntimeConfig, "runtime-config", "", "API versions to switch on or off, as GROUP/VERSION=true")
	cmd.Flags().BoolVar(&options.APIOnly, "api-only", false, "start etcd and the API server only: no nodes, no scheduler, no controller manager")
	cmd.MarkFlagsMutuallyExclusive("nodes", "api-only")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options.APIOnly {
			options.Nodes = nil
		}
		opened, err := open()
		if err != nil {
			return err
		}
		parts, err := build.DefaultDir()
		if err != nil {
			return err
		}
		return opened.Up(cmd.Context(), parts, options)
	}
	return cmd
}

func downCommand() *cobra.Command {
	var keepLogs bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the cluster, whatever state it is in, and remove its folder",
		Args:  cobra.NoArgs,
	}
	open := folder(cmd)
	cmd.Flags().BoolVar(&keepLogs, "keep-logs", false, "leave the logs in the folder")
	cmd.RunE = func(*cobra.Command, []string) error {
		opened, err := open()
		if err != nil {
			return err
		}
		return opened.Down(keepLogs)
	}
	return cmd
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what runs",
		Args:  cobra.NoArgs,
	}
	open := folder(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		opened, err := open()
		if err != nil {
			return err
		}
		return opened.Status(os.Stdout)
	}
	return cmd
}

func execCommand() *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "exec --node NODE -- COMMAND …",
		Short: "Run a command on a node (or on control-plane) and exit as it does",
		Args:  cobra.MinimumNArgs(1),
	}
	open := folder(cmd)
	cmd.Flags().StringVar(&node, "node", "node-a", "node")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opened, err := open()
		if err != nil {
			return err
		}
		err = opened.Exec(cmd.Context(), node, args)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Exited() {
			return exitError(exit.ExitCode())
		}
		return err
	}
	return cmd
}

func loadCommand() *cobra.Command {
	var (
		archive   string
		scheduler bool
		nodes     []string
	)
	cmd := &cobra.Command{
		Use:   "load --tar FILE | --kube-scheduler",
		Short: "Import an image archive, or the image of kube-scheduler, into all nodes, or some",
		Args:  cobra.NoArgs,
	}
	open := folder(cmd)
	cmd.Flags().StringVar(&archive, "tar", "", "archive of images, as cmd/image or `docker save` write it")
	cmd.Flags().BoolVar(&scheduler, "kube-scheduler", false, "the cluster's kube-scheduler, under the name of upstream's image")
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "nodes (default: all)")
	cmd.MarkFlagsOneRequired("tar", "kube-scheduler")
	cmd.MarkFlagsMutuallyExclusive("tar", "kube-scheduler")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if scheduler {
			dir, err := os.MkdirTemp("", "kube-scheduler-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			parts, err := build.DefaultDir()
			if err != nil {
				return err
			}
			archive = filepath.Join(dir, "kube-scheduler.tar")
			if err := parts.WriteSchedulerImage(archive); err != nil {
				return err
			}
		}
		opened, err := open()
		if err != nil {
			return err
		}
		return opened.Load(cmd.Context(), archive, nodes)
	}
	return cmd
}
