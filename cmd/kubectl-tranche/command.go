package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

const examples = `  # Show every GPU of the cluster, its partitions and their holders
  kubectl tranche

  # Show one node, with a line for every holder
  kubectl tranche --node node-a -o wide

  # Name only the holders of one namespace
  kubectl tranche -n team-a

  # Explain why a pod does not run
  kubectl tranche why train-7 -n team-a

  # Set the profile of a node, and wait until it is applied
  kubectl tranche profile node-a all-balanced --wait

  # Follow the rollout of a profile to many nodes
  kubectl tranche rollout status canary

  # Print what a node with eight H100 will publish
  kubectl tranche templates --model h100x8

  # Print JSON
  kubectl tranche -o json`

// options are the flags.
type options struct {
	config        *genericclioptions.ConfigFlags
	nodes         []string
	allNamespaces bool
	output        string
	noColor       bool
	ascii         bool
}

func newCommand(out io.Writer) *cobra.Command {
	o := &options{config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "kubectl-tranche",
		Short: "Show the partitions of each GPU, and who holds them",
		Long: "Show the partitions of each GPU of the cluster, who holds them, and what still fits.\n\n" +
			"Requires permission to list ResourceSlices, and ResourceClaims to name the holders.",
		Example:       examples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tranche"},
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.show(cmd.Context(), out) },
	}
	cmd.SetOut(out)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	flags := cmd.Flags()
	flags.StringSliceVar(&o.nodes, "node", nil, "show only this node; repeatable")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show holders of all namespaces (default without --namespace)")
	flags.StringVarP(&o.output, "output", "o", "", "output format: wide or json")
	flags.BoolVar(&o.noColor, "no-color", false, "disable colors; NO_COLOR in the environment does the same")
	flags.BoolVar(&o.ascii, "ascii", false, "use ASCII characters only")
	o.config.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(newWhyCommand(o, out), newTemplatesCommand(out), newProfilesCommand(o, out), newProfileCommand(o, out), newSwitchesCommand(o, out), newVersionCommand(out))
	cmd.AddCommand(newUninstallCommand(o, out), newConvertCommand(os.Stdin, out), newRolloutCommand(o, out), newPlanCommand(o, os.Stdin, out))
	return cmd
}

func (o *options) show(ctx context.Context, out io.Writer) error {
	if err := checkFormat(o.output, "wide", "json"); err != nil {
		return err
	}
	in, view, err := o.read(ctx)
	if err != nil {
		return err
	}
	summary := cluster.New(in).Summary(ctx, view)
	if o.output == "json" {
		return terminal.WriteJSON(out, summary)
	}
	return picture.Draw(out, summary, picture.Options{Screen: o.screen(out), Wide: o.output == "wide"})
}

// screen is what is written to, as the flags say.
func (o *options) screen(out io.Writer) terminal.Screen {
	s := terminal.ScreenOf(out)
	s.Color, s.ASCII = s.Color && !o.noColor, o.ascii
	return s
}

// checkFormat refuses an output format that is neither empty nor one of those allowed.
func checkFormat(format string, allowed ...string) error {
	if format == "" || slices.Contains(allowed, format) {
		return nil
	}
	return fmt.Errorf("unsupported output format %q: use %s", format, strings.Join(allowed, " or "))
}

func (o *options) read(ctx context.Context) (cluster.Objects, cluster.View, error) {
	c, own, err := o.connect()
	if err != nil {
		return cluster.Objects{}, cluster.View{}, err
	}
	view := cluster.View{Nodes: o.nodes}
	if !o.allNamespaces {
		view.Namespace = *o.config.Namespace
	}
	in, err := reader{connection: c, nodes: o.nodes, namespace: view.Namespace, own: own, now: time.Now()}.read(ctx)
	return in, view, err
}

// connection has a client for the kinds of Kubernetes, and one for ours.
type connection struct {
	kubernetes kubernetes.Interface
	ours       client.Interface
}

// connect returns clients and the namespace of the kubeconfig, or the one that was
// asked for.
func (o *options) connect() (connection, string, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return connection{}, "", err
	}
	// A handful of lists in many pages need not be slowed down.
	config.QPS, config.Burst = 50, 100
	var c connection
	if c.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return connection{}, "", fmt.Errorf("client for the API server: %w", err)
	}
	if c.ours, err = client.New(config); err != nil {
		return connection{}, "", err
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return connection{}, "", fmt.Errorf("namespace of the kubeconfig: %w", err)
	}
	return c, namespace, nil
}
