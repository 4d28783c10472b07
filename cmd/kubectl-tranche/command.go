package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
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
  kubectl tranche set-profile node-a all-balanced --wait

  # Serve a web page on this machine, and open it
  kubectl tranche ui --open

  # Follow the rollout of a profile to many nodes
  kubectl tranche rollout status canary

  # Show how much each GPU and partition is used
  kubectl tranche top gpus --node node-a

  # Print what a node with eight H100 will publish
  kubectl tranche templates --inventory h100x8

  # Print JSON
  kubectl tranche -o json`

// options are what all commands share.
type options struct {
	in             io.Reader
	out            io.Writer
	config         *genericclioptions.ConfigFlags
	noColor, ascii bool
	refused        refusals
}

func newCommand(out io.Writer) *cobra.Command {
	o := &options{in: os.Stdin, out: out, config: genericclioptions.NewConfigFlags(true)}
	var f showFlags
	cmd := &cobra.Command{
		Use:   "kubectl-tranche",
		Short: "Show the partitions of each GPU, and who holds them",
		Long: "Show the partitions of each GPU of the cluster, who holds them, and what still fits. With more than\n" +
			"5 nodes: sums by model and state, and the nodes in trouble.\n\n" +
			"Requires permission to list ResourceSlices, and ResourceClaims to name the holders.",
		Example:       examples,
		Args:          noCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tranche"},
		PreRunE:       f.check,
	}
	cmd.RunE = o.connected(func(ctx context.Context, s *session, _ []string) error {
		return (&showRun{session: s, flags: f, forced: cmd.Flags().Changed("summary")}).run(ctx)
	})
	cmd.SetOut(out)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	flags := cmd.Flags()
	flags.StringSliceVar(&f.nodes, "node", nil, "show only this node; repeatable")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "show holders of all namespaces (default without --namespace)")
	flags.StringVarP(&f.selector, "selector", "l", "", "show only the nodes with these labels")
	flags.BoolVar(&f.summary, "summary", false, "show sums and the nodes in trouble (default with more than 5 nodes); --summary=false draws all")
	flags.BoolVarP(&f.watch, "watch", "w", false, "show changes as they happen")
	addOutput(cmd, "", "wide", "json", "yaml", "name")
	o.addNoColor(cmd)
	flags.BoolVar(&o.ascii, "ascii", false, "use ASCII characters only")
	o.config.AddFlags(cmd.PersistentFlags())
	for _, add := range []func(*options) *cobra.Command{
		newWhyCommand, newTemplatesCommand, newProfilesCommand, newClassesCommand, newNodeCommand, newSetProfileCommand, newSwitchesCommand, newVersionCommand, newUninstallCommand,
		newConvertCommand, newRolloutCommand, newPlanCommand, newTopCommand, newUICommand, newDefragCommand, newReportCommand, newExitCodesTopic, newOptionsCommand,
	} {
		cmd.AddCommand(add(o))
	}
	o.complete(cmd)
	hideGlobalFlags(cmd)
	return cmd
}

// addNoColor adds the flag --no-color.
func (o *options) addNoColor(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.noColor, "no-color", false, "disable colors; NO_COLOR in the environment does the same")
}

// addOutput adds the flag --output, which accepts the formats. It is checked before the command runs.
func addOutput(cmd *cobra.Command, byDefault string, formats ...string) {
	const name = "output"
	last := len(formats) - 1
	list := strings.TrimPrefix(strings.Join(formats[:last], ", ")+" or "+formats[last], " or ")
	output := cmd.Flags().StringP(name, "o", byDefault, "output format: "+list)
	_ = cmd.RegisterFlagCompletionFunc(name, fixed(formats...)) // fails only for a flag that there is not
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *output != byDefault && !slices.Contains(formats, *output) {
			return fmt.Errorf("unsupported output format %q: use %s", *output, strings.Join(formats, " or "))
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
}

// plainly says that the API server cannot be reached, instead of which request the network failed.
func plainly(err error) error {
	request, isRequest := errors.AsType[*url.Error](err)
	network, isNetwork := errors.AsType[*net.OpError](err)
	if !isRequest || !isNetwork || network.Op != "dial" || exitCode(err) != exitError {
		return err
	}
	host := request.URL
	if server, err := url.Parse(host); err == nil {
		host = server.Host
	}
	return fmt.Errorf("the API server %s cannot be reached (%w): did you specify the right host or port?", host, network.Err)
}

// outputOf returns the format that the user asks for.
func outputOf(cmd *cobra.Command) string {
	output, _ := cmd.Flags().GetString("output") // empty for commands without the flag
	return output
}

// session is a command at work: what it asks, and how it writes.
type session struct {
	connection
	out    io.Writer
	output string
	// screen is what is written to. It can change while a command waits.
	screen func() picture.Screen
	now    func() time.Time
	// asked is the namespace that was asked for, empty if none was. namespace is the same or, without
	// one, that of the kubeconfig.
	asked, namespace string
}

// session returns a session without a connection.
func (o *options) session(cmd *cobra.Command) *session {
	screen := func() picture.Screen {
		s := picture.ScreenOf(o.out)
		s.Color, s.ASCII = s.Color && !o.noColor, o.ascii
		return s
	}
	return &session{out: o.out, output: outputOf(cmd), screen: screen, now: time.Now, asked: *o.config.Namespace}
}

// connected runs a command with a connection.
func (o *options) connected(run func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s := o.session(cmd)
		if err := s.connect(o); err != nil {
			return err
		}
		return o.advise(cmd, s, run(cmd.Context(), s, args))
	}
}

// advise says, with the error of a command or on standard error, who allows what was refused.
func (o *options) advise(cmd *cobra.Command, s *session, err error) error {
	if err = plainly(err); cmd.Context().Err() != nil {
		return err
	}
	advice := o.refused.advice(cmd.Context(), s.Kubernetes, err)
	switch {
	case advice == "":
	case err != nil:
		return fmt.Errorf("%w\n%s", err, advice)
	default:
		fmt.Fprintln(cmd.ErrOrStderr(), advice)
	}
	return err
}

// show writes what a command shows: as JSON or YAML if the user asks for that, or drawn.
func (s *session) show(content any, draw func(*picture.Page)) error {
	if !s.forPrograms() {
		return s.screen().Draw(s.out, draw)
	}
	document, err := documentOf(content)
	if err != nil {
		return err
	}
	return s.write(document)
}

func (s *session) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.out, format+"\n", args...); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// readFile reads a file, or standard input for "-".
func readFile(in io.Reader, file string) (data []byte, err error) {
	if file == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return data, nil
}

// connection reads and writes with the rights of the user.
type connection struct{ read.Clients }

func (s *session) connect(o *options) error {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return err
	}
	// A handful of lists in many pages need not be slowed down.
	config.QPS, config.Burst = 50, 100
	config.Wrap(usage.Stay)
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return o.refused.wrap(host.Path, next) })
	if s.Clients, err = read.NewClients(config); err != nil {
		return err
	}
	if s.namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
		return fmt.Errorf("namespace of the kubeconfig: %w", err)
	}
	return nil
}
