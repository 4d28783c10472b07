package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/terminal"
	"github.com/tranche-dev/tranche/pkg/why"
)

const whyExamples = `  # Why does this pod not run?
  kubectl tranche why train-7 -n team-a

  # Why does this job make no pods?
  kubectl tranche why nightly -n team-a

  # Every node, not only the likeliest
  kubectl tranche why train-7 -n team-a -o wide

  # For programs
  kubectl tranche why train-7 -n team-a -o json`

const whyLong = `Tell why a pod that wants a piece of a GPU does not run: what it asks for, and
for every node with GPUs what is in the way: no such profile, all pieces held
(and by whom), a taint, a node that the pod may not use. For a pod that has its
place: what the kubelet says about its devices.

Whether it would fit now is asked of the scheduler's own allocator. POD may also
be the name of a job or a deployment whose pods cannot be created.

Needs the right to get the pod and to list the ResourceClaims of its namespace.
The more of ResourceSlices, DeviceClasses, DeviceTaintRules, nodes, events and
other ResourceClaims you may list, the more it can say; what is missing, it says.`

// errNotThere ends the program with an error after the explanation is written.
var errNotThere = errors.New("no such pod")

func newWhyCommand(o *options, out io.Writer) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:           "why POD",
		Short:         "Tell why a pod that wants a piece of a GPU does not run",
		Long:          whyLong,
		Example:       whyExamples,
		Args:          onePod,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.why(cmd.Context(), out, strings.TrimPrefix(strings.TrimPrefix(args[0], "pod/"), "pods/"), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: wide (every node) or json")
	cmd.Flags().BoolVar(&o.noColor, "no-color", false, "disable colors; NO_COLOR in the environment does the same")
	return cmd
}

func onePod(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one pod: kubectl tranche why POD [-n NAMESPACE]")
	}
	return nil
}

func (o *options) why(ctx context.Context, out io.Writer, name, output string) error {
	if err := checkFormat(output, "wide", "json"); err != nil {
		return err
	}
	c, namespace, err := o.connect()
	if err != nil {
		return err
	}
	r := whyReader{connection: c, namespace: namespace, name: name, now: time.Now()}
	in, err := r.read(ctx)
	var e *why.Explanation
	switch {
	case apierrors.IsNotFound(err):
		e = why.ExplainAbsence(r.absent(ctx))
	case err != nil:
		return err
	default:
		e = why.Explain(ctx, in)
	}
	if output == "json" {
		err = terminal.WriteJSON(out, e)
	} else {
		err = picture.DrawExplanation(out, e, picture.Options{Screen: o.screen(out), Wide: output == "wide"})
	}
	if err == nil && e.State == why.Absent {
		return fmt.Errorf("%w: %s in namespace %s", errNotThere, name, namespace)
	}
	return err
}
