package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/profile/thirdparty"
)

// facts collects what the state machine needs, and enforces the current state on the Node. A
// failure is returned as an error and is also in the facts, because a state ends at its
// deadline even if the API server refuses everything.
func (r *Reconciler) facts(ctx context.Context, gpuNode *v1alpha1.GPUNode, node *corev1.Node) (*state.Facts, error) {
	choice, err := r.choice(ctx, false, gpuNode, node)
	if err != nil {
		return nil, err
	}
	f := &state.Facts{Now: r.Clock.Now(), Choice: choice, Evicted: r.memory.evicted(gpuNode.Name, 0)}
	s := &gpuNode.Status
	var errs []error
	if state.Enforced(s) {
		err = r.enforce(ctx, gpuNode, node)
		f.Tainted = err == nil
		if err != nil {
			f.Trouble = err.Error()
			errs = append(errs, err)
		}
	}
	switch s.State {
	case v1alpha1.Planning, v1alpha1.Waiting:
		f.Pausable = pausable(node.Labels, r.PauseLabels)
		f.Granted, f.Others = r.Plans.Granted(gpuNode)
	case v1alpha1.Tainted:
		if state.PlanStands(s) {
			errs = append(errs, r.lookAtPods(ctx, gpuNode, f), r.tryEvictions(ctx, gpuNode, f))
		}
	case v1alpha1.Draining:
		errs = append(errs, r.lookAtPods(ctx, gpuNode, f))
	case v1alpha1.Failed:
		errs = append(errs, r.lookAtBlockers(ctx, gpuNode, f))
	case v1alpha1.Applying, v1alpha1.Rebooting, v1alpha1.Verifying, v1alpha1.RollingBack:
		if s.Node != nil && state.Answered(s) {
			errs = append(errs, r.verify(ctx, gpuNode, f))
		}
	}
	return f, errors.Join(errs...)
}

// lookAtPods finds the holders of the GPUs that change, and the paused clients.
func (r *Reconciler) lookAtPods(ctx context.Context, gpuNode *v1alpha1.GPUNode, f *state.Facts) (err error) {
	sw := gpuNode.Status.Switch
	on := r.drainer.On(gpuNode.Name)
	f.Unseen = ""
	defer func() {
		if err != nil {
			f.Unseen = err.Error()
		}
	}()
	gpus, keeps := state.Drained(sw, gpuNode.Status.Node)
	f.Holders, err = on.Holders(ctx, gpus, keeps)
	if err != nil {
		return err
	}
	f.Clients, err = on.Clients(ctx, sw.Paused, r.ClientNamespaces)
	return err
}

// liveChoice is choice with objects from the API server. A switch must not begin or be
// canceled because of an outdated cache: a new leader could switch a node back to an earlier
// profile.
func (r *Reconciler) liveChoice(ctx context.Context, gpuNode *v1alpha1.GPUNode) (state.Choice, error) {
	var node corev1.Node
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: gpuNode.Name}, &node); client.IgnoreNotFound(err) != nil {
		return state.Choice{}, fmt.Errorf("read node %s: %w", gpuNode.Name, err)
	}
	return r.choice(ctx, true, gpuNode, &node)
}

// choice finds the desired profile of a node, by the API server if live, otherwise by caches.
func (r *Reconciler) choice(ctx context.Context, live bool, gpuNode *v1alpha1.GPUNode, node *corev1.Node) (state.Choice, error) {
	if node.UID == "" {
		return state.WithoutNode(r.Policy), nil
	}
	n := state.NamedBy(gpuNode, node.Labels, r.Tools, r.Plans.Of(gpuNode, node.Labels))
	found, err := r.find(ctx, live, n)
	if err != nil {
		return state.Choice{}, err
	}
	c := state.Choose(n, found, r.Policy)
	if c.Desired != nil {
		if why := r.Plans.Admit(gpuNode, c.Desired); why != nil {
			c.Wait(&gpuNode.Status, why)
		}
	} else {
		r.Plans.Keeps(gpuNode.Name)
	}
	return c, nil
}

// find finds the profile that is named for a node: one that exists, or one that the project
// brings whose label names it.
func (r *Reconciler) find(ctx context.Context, live bool, n state.Named) (state.Found, error) {
	found, err := r.findExisting(ctx, live, n)
	if found.Spec == nil && found.Problem == "" && err == nil {
		found.Spec = brought(n.Profile())
	}
	return found, err
}

// brought is the profile that a project has for a value of its label, nil: none.
func brought(name state.Name) *v1alpha1.PartitionProfileSpec {
	switch name.Source {
	case v1alpha1.FromKaiwo:
		if p, ok := thirdparty.KaiwoDefault(name.Value); ok {
			return &p.Spec
		}
	case v1alpha1.FromNos:
		if p := thirdparty.NosProfile(name.Value); p.Err == nil {
			return &p.Spec
		}
	}
	return nil
}

func (r *Reconciler) findExisting(ctx context.Context, live bool, n state.Named) (state.Found, error) {
	name := n.Profile()
	if n.NamesNothing() {
		return state.Found{}, nil
	}
	if name.ConfigMap != (state.ConfigMap{}) {
		return r.configMaps.find(ctx, live, name)
	}
	var from client.Reader = r.Client
	if live {
		from = r.Reader
	}
	var profile v1alpha1.PartitionProfile
	err := from.Get(ctx, client.ObjectKey{Name: name.Profile}, &profile)
	if err == nil {
		return state.Found{Spec: &profile.Spec}, nil
	}
	if !apierrors.IsNotFound(err) {
		return state.Found{}, fmt.Errorf("read PartitionProfile %s: %w", name.Profile, err)
	}
	var found state.Found
	if name.Source != v1alpha1.FromDefault && name.Source != v1alpha1.FromPlan {
		var all v1alpha1.PartitionProfileList
		if err := from.List(ctx, &all); err != nil {
			return state.Found{}, fmt.Errorf("list the PartitionProfiles: %w", err)
		}
		for i := range all.Items {
			found.Others = append(found.Others, all.Items[i].Name)
		}
	}
	return found, nil
}
