package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
)

const defragExamples = `  # Print which pods to move for the waiting pods of a namespace
  kubectl tranche defrag -n team-a

  # Print which pods to move for one pod, at most four of them
  kubectl tranche defrag --max-pods 4 train-7 -n team-a

  # Print which pods to move for all waiting pods, as JSON
  kubectl tranche defrag -A -o json`

const defragLong = `Print which pods could move so that a pod that waits for a GPU fits. Nothing is changed:
the controller moves pods, if the chart's value controller.defragmentation.enabled is true.
The scheduler's own allocator decides what fits. For a pod without a plan, the reason
is printed.

Plans move only pods that may be evicted: the pod or its namespace has the label
tranche.dev/defragmentation=true, a controller replaces the pod, its claims are
created from templates, its priority is not higher than that of the waiting pod, and
its PodDisruptionBudget allows the eviction.

Requires permission to list in the whole cluster: pods, nodes, PodDisruptionBudgets,
DeviceTaintRules, ResourceClaims, ResourceClaimTemplates, ResourceSlices and
DeviceClasses. With permission to list namespaces, jobs, PersistentVolumeClaims,
PersistentVolumes and StorageClasses, plans can move more pods.`

type defragFlags struct {
	allNamespaces bool
	maxPods       int
}

func newDefragCommand(o *options) *cobra.Command {
	var f defragFlags
	cmd := &cobra.Command{
		Use:     "defrag [POD]",
		Short:   "Print which pods could move to make room for a waiting pod",
		Long:    defragLong,
		Example: defragExamples,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: f.check,
		RunE: o.connected(func(ctx context.Context, s *session, args []string) error {
			if f.allNamespaces {
				s.namespace = metav1.NamespaceAll
			}
			return (&defragRun{session: s, flags: f, pod: strings.Join(args, "")}).run(ctx)
		}),
	}
	cmd.Flags().IntVar(&f.maxPods, "max-pods", defrag.DefaultMaxPods, "maximum number of pods that one plan moves")
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "print plans for the waiting pods of all namespaces")
	addOutput(cmd, "", "json", "yaml")
	o.addNoColor(cmd)
	return cmd
}

func (f *defragFlags) check(_ *cobra.Command, args []string) error {
	switch {
	case f.maxPods < 1:
		return fmt.Errorf("--max-pods is %d, it must be at least 1", f.maxPods)
	case f.allNamespaces && len(args) > 0:
		return errors.New("a pod name and --all-namespaces cannot be used together")
	}
	return nil
}

// defragRun is one run of the command defrag. The namespace of the session is that of the waiting pods,
// empty for all.
type defragRun struct {
	*session
	flags defragFlags
	// pod is the name of the only pod to plan for, empty for all.
	pod    string
	unread []text.Unread
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
	advice := defrag.Advice{Pods: []defrag.PodAdvice{}, Unread: r.unread}
	progress := read.ProgressOf(ctx)
	defer progress.Done()
	for i, pod := range waiting {
		progress.Say("Searching for a plan for pod %d of %d: %s/%s.", i+1, len(waiting), pod.Namespace, pod.Name)
		podAdvice, err := planner.Advise(ctx, pod)
		if err != nil {
			return err
		}
		if r.pod == "" && podAdvice.Refusal != nil && (podAdvice.Refusal.Reason == defrag.NoDevices || podAdvice.Refusal.Reason == defrag.NotWaiting) {
			continue
		}
		advice.Pods = append(advice.Pods, podAdvice)
	}
	progress.Done()
	return r.show(advice, func(p *picture.Page) { picture.DrawAdvice(p, advice) })
}

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
		return nil, fmt.Errorf("pod %s does not exist in namespace %s", r.pod, r.namespace)
	}
	return out, nil
}
