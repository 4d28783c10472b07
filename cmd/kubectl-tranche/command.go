package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/terminal"
	"github.com/tranche-dev/tranche/pkg/usage"
)

const examples = `  # Show every GPU of the cluster, its partitions and their holders
  kubectl tranche

  # Show one node, with a line for every holder
  kubectl tranche --node node-a -o wide

  # Show the sums of many nodes, with a line for each
  kubectl tranche -l pool=training --summary -o wide

  # Show changes as they happen
  kubectl tranche --watch

  # Name only the holders of one namespace
  kubectl tranche -n team-a

  # Explain why a pod does not run
  kubectl tranche why train-7 -n team-a

  # Set the profile of a node, and wait until it is applied
  kubectl tranche profile node-a all-balanced --wait

  # Serve a web page on this machine, and open it
  kubectl tranche ui --open

  # Follow the rollout of a profile to many nodes
  kubectl tranche rollout status canary

  # Show how much each GPU and partition is used
  kubectl tranche top gpus --node node-a

  # Print what a node with eight H100 will publish
  kubectl tranche templates --model h100x8

  # Print JSON
  kubectl tranche -o json`

// options are the flags.
type options struct {
	config        *genericclioptions.ConfigFlags
	nodes         []string
	selector      string
	allNamespaces bool
	summary       bool
	watch         bool
	output        string
	noColor       bool
	ascii         bool
}

func newCommand(out io.Writer) *cobra.Command {
	o := &options{config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "kubectl-tranche",
		Short: "Show the partitions of each GPU, and who holds them",
		Long: "Show the partitions of each GPU of the cluster, who holds them, and what still fits. With more than\n" +
			"5 nodes: sums by model and state, and the nodes in trouble.\n\n" +
			"Requires permission to list ResourceSlices, and ResourceClaims to name the holders.",
		Example:       examples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tranche"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&showRun{options: o, out: out, forced: cmd.Flags().Changed("summary")}).run(cmd.Context())
		},
	}
	cmd.SetOut(out)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	flags := cmd.Flags()
	flags.StringSliceVar(&o.nodes, "node", nil, "show only this node; repeatable")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show holders of all namespaces (default without --namespace)")
	flags.StringVarP(&o.selector, "selector", "l", "", "show only the nodes with these labels")
	flags.BoolVar(&o.summary, "summary", false, "show sums and the nodes in trouble (default with more than 5 nodes); --summary=false draws all")
	flags.BoolVarP(&o.watch, "watch", "w", false, "show changes as they happen")
	addOutput(cmd, &o.output, "wide", "json", "yaml", "name")
	flags.BoolVar(&o.noColor, "no-color", false, "disable colors; NO_COLOR in the environment does the same")
	flags.BoolVar(&o.ascii, "ascii", false, "use ASCII characters only")
	o.config.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(newWhyCommand(o, out), newTemplatesCommand(out), newProfilesCommand(o, out), newProfileCommand(o, out), newSwitchesCommand(o, out), newVersionCommand(o, out))
	cmd.AddCommand(newUninstallCommand(o, out), newConvertCommand(os.Stdin, out), newRolloutCommand(o, out), newPlanCommand(o, os.Stdin, out), newTopCommand(o, out), newUICommand(o, out), newDefragCommand(o, out))
	o.complete(cmd)
	return cmd
}

// screen is what is written to, as the flags say.
func (o *options) screen(out io.Writer) terminal.Screen {
	s := terminal.ScreenOf(out)
	s.Color, s.ASCII = s.Color && !o.noColor, o.ascii
	return s
}

// addOutput adds the flag --output, which accepts the formats. Its default is what output is. It is checked before the command runs.
func addOutput(cmd *cobra.Command, output *string, formats ...string) {
	const name = "output"
	last := len(formats) - 1
	list := strings.TrimPrefix(strings.Join(formats[:last], ", ")+" or "+formats[last], " or ")
	cmd.Flags().StringVarP(output, name, "o", *output, "output format: "+list)
	_ = cmd.RegisterFlagCompletionFunc(name, fixed(formats...)) // fails only for a flag that there is not
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output == "" || slices.Contains(formats, *output) {
			return nil
		}
		return fmt.Errorf("unsupported output format %q: use %s", *output, strings.Join(formats, " or "))
	}
}

// write writes what a command shows: as JSON or YAML if the user asks for that, or drawn.
func write(out io.Writer, output string, content any, draw func() error) error {
	switch output {
	case "json":
		return terminal.WriteJSON(out, content)
	case "yaml":
		return terminal.WriteYAML(out, content)
	}
	return draw()
}

// connected runs a command with a connection.
func (o *options) connected(run func(ctx context.Context, c connection, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, _, err := o.connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
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
	config.Wrap(usage.Stay)
	var c connection
	if c.kubernetes, err = kubernetes.NewForConfig(compact(config)); err != nil {
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

// compact asks for Kubernetes' own kinds in a shorter form than JSON: the ResourceSlices of a
// thousand nodes are a hundred megabytes of that.
func compact(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}
