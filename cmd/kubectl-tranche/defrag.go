package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

const defragExamples = `  # Print whom to move for the waiting pods of a namespace
  kubectl tranche defrag --dry-run -n team-a

  # Print it for one pod, if at most two pods may move
  kubectl tranche defrag --dry-run --max-pods 2 train-7 -n team-a

  # Print it for all waiting pods as JSON
  kubectl tranche defrag --dry-run -A -o json`

const defragLong = `Print which pods could move so that a pod that waits for a GPU fits, without changing
anything. The scheduler's own allocator decides what fits. For a pod without a plan,
the reason is printed.

Only pods that may be evicted are considered: they, or their namespace, have the label
tranche.dev/defragmentation=allowed, something creates them again, their claims are
made from templates, their priority is not above that of the waiting pod, and a
PodDisruptionBudget allows it.

Requires permission to list the objects of the whole cluster that decide where pods
fit: pods, nodes, PodDisruptionBudgets, DeviceTaintRules, ResourceClaims, their
templates, ResourceSlices and DeviceClasses. With permission to list namespaces, jobs,
PersistentVolumeClaims, PersistentVolumes and StorageClasses, more pods can be moved.`

// defragFlags are those of the command defrag.
type defragFlags struct {
	dryRun, allNamespaces bool
	maxPods               int
	output                string
}

func newDefragCommand(o *options, out io.Writer) *cobra.Command {
	var f defragFlags
	cmd := &cobra.Command{
		Use:           "defrag --dry-run [POD]",
		Short:         "Print which pods could move to make room for a waiting pod",
		Long:          defragLong,
		Example:       defragExamples,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.check(args), checkFormat(f.output, "json", "yaml")); err != nil {
				return err
			}
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			if f.allNamespaces {
				namespace = metav1.NamespaceAll
			}
			r := &defragRun{connection: c, out: out, screen: o.screen(out), flags: f, namespace: namespace, now: time.Now()}
			if len(args) == 1 {
				r.pod = args[0]
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing; this command can do nothing else")
	cmd.Flags().IntVar(&f.maxPods, "max-pods", 4, "most pods that one plan moves")
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "look at the waiting pods of all namespaces")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "output format: json or yaml")
	cmd.Flags().BoolVar(&o.noColor, "no-color", false, "disable colors; NO_COLOR in the environment does the same")
	return cmd
}

func (f *defragFlags) check(args []string) error {
	switch {
	case !f.dryRun:
		return errors.New("this command changes nothing: give --dry-run. The controller moves pods if the chart's value controller.defragmentation.enabled is true")
	case f.maxPods < 1:
		return fmt.Errorf("--max-pods %d: give 1 or more", f.maxPods)
	case f.allNamespaces && len(args) > 0:
		return errors.New("name a pod or give --all-namespaces, not both")
	}
	return nil
}

// defragRun is the command at work.
type defragRun struct {
	connection
	out    io.Writer
	screen terminal.Screen
	flags  defragFlags
	// namespace is that of the waiting pods, empty for all. pod is the only one to look at, empty for all.
	namespace, pod string
	now            time.Time
	notes          []string
}

func (r *defragRun) run(ctx context.Context) error {
	in, err := r.read(ctx)
	if err != nil {
		return err
	}
	waiting, err := r.waiting(in)
	if err != nil {
		return err
	}
	planner, err := defrag.New(in, defrag.Options{MaxPods: r.flags.maxPods})
	if err != nil {
		return err
	}
	advice := defrag.Advice{Pods: []defrag.Advised{}, Notes: r.notes}
	progress := progressOf(ctx)
	defer progress.Done()
	for i, pod := range waiting {
		progress.Say("Looking for room: pod %d of %d, %s.", i+1, len(waiting), pod.Name)
		advised, err := planner.Advise(ctx, pod)
		if err != nil {
			return err
		}
		if r.pod == "" && advised.Refusal != nil && (advised.Refusal.Reason == defrag.NoDevices || advised.Refusal.Reason == defrag.NotWaiting) {
			continue
		}
		advice.Pods = append(advice.Pods, advised)
	}
	progress.Done()
	switch r.flags.output {
	case "json":
		return terminal.WriteJSON(r.out, advice)
	case "yaml":
		return terminal.WriteYAML(r.out, advice)
	}
	return picture.DrawAdvice(r.out, r.screen, advice)
}

// waiting are the pods to look at.
func (r *defragRun) waiting(in *defrag.Input) (out []*corev1.Pod, err error) {
	for i := range in.Pods {
		pod := &in.Pods[i]
		switch {
		case r.namespace != "" && pod.Namespace != r.namespace, r.pod != "" && pod.Name != r.pod:
		case r.pod != "", pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending:
			out = append(out, pod)
		}
	}
	if r.pod != "" && len(out) == 0 {
		return nil, fmt.Errorf("there is no pod %s in the namespace %s", r.pod, r.namespace)
	}
	return out, nil
}
