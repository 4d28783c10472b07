package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/why"
)

const whyExamples = `  # Explain why a pod does not run
  kubectl tranche why train-7 -n team-a

  # Explain what a job waits for
  kubectl tranche why job/nightly -n team-a

  # Explain the objects of a file
  kubectl tranche why -f job.yaml

  # Show every node, not only the most likely ones
  kubectl tranche why train-7 -n team-a -o wide

  # Print JSON
  kubectl tranche why train-7 -n team-a -o json`

const whyLong = `Explain why a pod that requests a GPU or a part of one does not run: what it
requests, and for every node with GPUs why it does not fit: no such profile, all
devices are held (with the holders), a taint, or a node that the pod cannot use. For
a scheduled pod: what the kubelet reports about its devices.

For a job, deployment, statefulset, replicaset or jobset: whether it is suspended,
what Kueue waits for, why its pods are refused, and one pod of each kind that waits.
For a resourceclaim: who uses it, and what its pods wait for.

The scheduler's own allocator decides what fits.

Requires permission to get the object and to list the pods and ResourceClaims of its
namespace. With permission to list ResourceSlices, DeviceClasses,
DeviceTaintRules, nodes, events, other ResourceClaims and pods, the explanation is
more complete. It says what it could not read, and what it therefore cannot tell.`

var errNotThere = errors.New("no such pod")

func newWhyCommand(o *options) *cobra.Command {
	var files []string
	var targets []target
	cmd := &cobra.Command{
		Use:     "why (POD... | TYPE/NAME... | -f FILE)",
		Short:   "Explain why a pod that requests a GPU does not run",
		Long:    whyLong,
		Example: whyExamples,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			targets, err = targetsOf(args, o.in, files)
			return err
		},
		RunE: o.connected(func(ctx context.Context, s *session, _ []string) error { return s.why(ctx, targets) }),
	}
	addOutput(cmd, "", "wide", "json", "yaml")
	o.addNoColor(cmd)
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file with the objects to explain, - for standard input; repeatable")
	return cmd
}

// targetsOf returns the objects that arguments or files name.
func targetsOf(args []string, in io.Reader, files []string) ([]target, error) {
	if len(files) == 0 {
		return parseTargets(args)
	}
	if len(args) > 0 {
		return nil, errors.New("-f FILE takes no other objects")
	}
	var all []target
	for _, file := range files {
		some, err := targetsIn(in, file)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// inNamespace refuses objects whose namespace is not the one that the user names.
func inNamespace(targets []target, namespace string) error {
	for _, t := range targets {
		if namespace != "" && t.namespace != "" && t.namespace != namespace {
			return fmt.Errorf("%s %s is in the namespace %s by its file, and --namespace says %s: leave out --namespace", t.kind, t.name, t.namespace, namespace)
		}
	}
	return nil
}

func (s *session) why(ctx context.Context, targets []target) error {
	if err := inNamespace(targets, s.asked); err != nil {
		return err
	}
	all := explanations{}
	var errs []error
	for i, t := range targets {
		if t.namespace == "" {
			t.namespace = s.namespace
		}
		content, draw, err := newWhyReader(s.connection, t.namespace, s.now()).explain(ctx, t)
		errs = append(errs, err)
		switch {
		case content == nil:
		case s.forPrograms():
			document, err := documentOf(content)
			all, errs = append(all, document), append(errs, err)
		default:
			if i > 0 {
				errs = append(errs, s.say(""))
			}
			errs = append(errs, s.screen().Draw(s.out, func(p *picture.Page) { draw(p, s.output == "wide") }))
		}
	}
	switch {
	case !s.forPrograms():
	case len(targets) > 1:
		errs = append(errs, s.show(all, nil))
	case len(all) > 0:
		errs = append(errs, s.write(all[0]))
	}
	return errors.Join(errs...)
}

// explain explains an object. It returns the explanation, and what draws it. Of a pod that
// does not exist there are an explanation and an error.
func (r *whyReader) explain(ctx context.Context, t target) (content any, draw func(p *picture.Page, all bool), err error) {
	if t.kind != podKind {
		e, err := r.explainOwner(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		return e, func(p *picture.Page, all bool) { picture.DrawOwner(p, e, all) }, nil
	}
	e, err := r.explainPod(ctx, t.name)
	if err != nil {
		return nil, nil, err
	}
	if e.State == why.Absent {
		err = fmt.Errorf("%w: %s in namespace %s", errNotThere, t.name, t.namespace)
	}
	return e, func(p *picture.Page, all bool) { picture.DrawExplanation(p, e, all) }, err
}

func (r *whyReader) explainPod(ctx context.Context, name string) (*why.Explanation, error) {
	in, err := r.read(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return why.ExplainAbsence(r.absent(ctx, name)), nil
	case err != nil:
		return nil, err
	}
	return why.Explain(ctx, in), nil
}
