package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

// fill adds the pods of each node that would have to leave, and tries to evict them by dry
// runs.
func (r *planRun) fill(ctx context.Context, f *rollout.Forecast, in rollout.ForecastInput) error {
	claims, err := read.All[resourceapi.ResourceClaim](ctx, r, metav1.NamespaceAll)
	if err != nil {
		return fmt.Errorf("list ResourceClaims: %w", err)
	}
	// Without slices, all that claims hold is what a node does not publish.
	held := map[string][]cluster.Held{}
	for _, h := range cluster.New(cluster.Objects{Claims: claims}).Summary(ctx, cluster.View{}).Lost {
		held[h.Pool] = append(held[h.Pool], h) // a pool has the name of its node
	}
	gpuNodes := map[string]*v1beta1.GPUNode{}
	for i := range in.GPUNodes {
		gpuNodes[in.GPUNodes[i].Name] = &in.GPUNodes[i]
	}
	progress := read.ProgressOf(ctx)
	defer progress.Done()
	for i := range f.Nodes {
		n := &f.Nodes[i]
		progress.Say("Trying evictions by dry runs: node %d of %d, %s.", i+1, len(f.Nodes), n.Name)
		devices := lists.Map(held[n.Name], func(h cluster.Held) string { return h.Device })
		slices.Sort(devices)
		release, err := preview.Of(gpuNodes[n.Name], in.Target, devices)
		if err != nil {
			n.Reason, n.Unfit = names.ReasonProfileDoesNotFit, err.Error()
			continue
		}
		n.Unknown = release.Unknown
		for _, c := range consumersOf(held[n.Name], release) {
			if c.Kind == rollout.BlockerPod {
				c.Why = r.tryEviction(ctx, c.ForecastPod)
			}
			if c.Why == "" {
				c.NotReplaced = r.notReplaced(ctx, c.ForecastPod)
				n.Evicts = append(n.Evicts, c.ForecastPod)
			} else {
				n.Blocked = append(n.Blocked, c)
			}
		}
	}
	return nil
}

// forecastOf returns what a switch of a node to a profile would do.
func (s *session) forecastOf(ctx context.Context, n *v1beta1.GPUNode, to *v1beta1.PartitionProfile) (*rollout.ForecastNode, []text.Unread, error) {
	run := planRun{session: s}
	f := rollout.Forecast{Nodes: []rollout.ForecastNode{{Name: n.Name}}}
	err := run.fill(ctx, &f, rollout.ForecastInput{GPUNodes: []v1beta1.GPUNode{*n}, Target: profile.Snapshot(to.Name, to.Spec.Rules)})
	return &f.Nodes[0], run.unread, err
}

// notReplaced reports whether no controller creates a pod again. It is false if that is not known.
func (r *planRun) notReplaced(ctx context.Context, pod rollout.ForecastPod) bool {
	p, err := r.Kubernetes.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return err == nil && metav1.GetControllerOf(p) == nil
}

// consumersOf returns the pods whose claims hold devices that have to be released, and what else these
// are reserved for.
func consumersOf(held []cluster.Held, release preview.Release) (all []rollout.ForecastBlocker) {
	add := func(c rollout.ForecastBlocker) {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	for _, h := range held {
		if !slices.Contains(release.Devices, h.Device) && !slices.Contains(release.Unknown, gpu.OfDevice(h.Device)) {
			continue
		}
		for _, o := range h.Holders {
			for _, name := range o.Pods {
				add(rollout.ForecastBlocker{Kind: rollout.BlockerPod, ForecastPod: rollout.ForecastPod{Namespace: o.Namespace, Name: name}})
			}
			for _, c := range o.Others {
				add(rollout.ForecastBlocker{
					Kind: rollout.BlockerOtherConsumer, APIGroup: c.APIGroup, Resource: c.Resource,
					ForecastPod: rollout.ForecastPod{Namespace: o.Namespace, Name: c.Name}, Why: "it is not a pod, so it cannot be evicted",
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b rollout.ForecastBlocker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// notTried returns what is not known if the user may not evict pods of a namespace.
func notTried(namespace string) text.Unread {
	return text.Unread{
		Verb: "create", Resource: "pods/eviction", Namespace: namespace,
		Consequence: "which pods of namespace " + namespace + " can be evicted is not known",
	}.Refused()
}

// tryEviction says why a pod cannot be evicted, empty if it can be, or if that is not known.
func (r *planRun) tryEviction(ctx context.Context, pod rollout.ForecastPod) string {
	err := r.Kubernetes.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return ""
	case apierrors.IsForbidden(err):
		if u := notTried(pod.Namespace); !slices.Contains(r.unread, u) {
			r.unread = append(r.unread, u)
		}
		return ""
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}
	return err.Error()
}
