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

const whyExamples = `  # Explain why a pod does not run
  kubectl tranche why train-7 -n team-a

  # Explain why a job creates no pods
  kubectl tranche why nightly -n team-a

  # Show every node, not only the most likely ones
  kubectl tranche why train-7 -n team-a -o wide

  # Print JSON
  kubectl tranche why train-7 -n team-a -o json`

const whyLong = `Explain why a pod that requests a GPU or a part of one does not run: what it
requests, and for every node with GPUs why it does not fit: no such profile, all
devices are held (with the holders), a taint, or a node that the pod cannot use. For
a scheduled pod: what the kubelet reports about its devices.

The scheduler's own allocator decides what fits. POD can also be the name of a
job or a deployment whose pods cannot be created.

Requires permission to get the pod and to list the ResourceClaims of its
namespace. With permission to list ResourceSlices, DeviceClasses,
DeviceTaintRules, nodes, events and other ResourceClaims, the explanation is
more complete. It says what it could not read.`

// errNotThere ends the program with an error after the explanation is written.
var errNotThere = errors.New("no such pod")

func newWhyCommand(o *options, out io.Writer) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:           "why POD",
		Short:         "Explain why a pod that requests a GPU does not run",
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
