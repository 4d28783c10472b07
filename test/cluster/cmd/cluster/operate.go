package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/cluster/internal/cluster"
)

// operation is a command that does one thing to the cluster or to one node.
type operation struct {
	use, short string
	onNode     bool // has --node
	ends       bool // has --kill
	do         func(ctx context.Context, c *cluster.Cluster, node string, kill bool) error
}

var operations = []operation{
	{"stop-kubelet", "End a node's kubelet; its pods go on", true, true,
		func(_ context.Context, c *cluster.Cluster, node string, kill bool) error {
			return c.StopKubelet(node, kill)
		}},
	{"start-kubelet", "Start a node's kubelet and wait until it works", true, false,
		func(ctx context.Context, c *cluster.Cluster, node string, _ bool) error {
			return c.StartKubelet(ctx, node)
		}},
	{"restart-kubelet", "End a node's kubelet, start it and wait until it works", true, true,
		func(ctx context.Context, c *cluster.Cluster, node string, kill bool) error {
			return c.RestartKubelet(ctx, node, kill)
		}},
	{"restart-containerd", "End a node's containerd, start it and wait until it answers; containers go on", true, true,
		func(ctx context.Context, c *cluster.Cluster, node string, kill bool) error {
			return c.RestartContainerd(ctx, node, kill)
		}},
	{"stop-apiserver", "End the API server; all else goes on", false, true,
		func(_ context.Context, c *cluster.Cluster, _ string, kill bool) error { return c.StopAPIServer(kill) }},
	{"start-apiserver", "Start the API server and wait until it is ready", false, false,
		func(ctx context.Context, c *cluster.Cluster, _ string, _ bool) error { return c.StartAPIServer(ctx) }},
	{"reboot", "Cut a node's power and start it again", true, false,
		func(ctx context.Context, c *cluster.Cluster, node string, _ bool) error { return c.Reboot(ctx, node) }},
}

func (o operation) command() *cobra.Command {
	var (
		node string
		kill bool
	)
	cmd := &cobra.Command{Use: o.use, Short: o.short, Args: cobra.NoArgs}
	open := folder(cmd)
	if o.onNode {
		cmd.Flags().StringVar(&node, "node", "node-a", "node")
	}
	if o.ends {
		cmd.Flags().BoolVar(&kill, "kill", false, "with SIGKILL, at once")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opened, err := open()
		if err != nil {
			return err
		}
		return o.do(cmd.Context(), opened, node, kill)
	}
	return cmd
}
