package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// facts collects what the state machine needs, and enforces the current state on the Node. A
// failure is returned as an error and is also in the facts, because a state ends at its
// deadline even if the API server refuses everything.
func (r *Reconciler) facts(ctx context.Context, gpuNode *v1beta1.GPUNode, node *corev1.Node, said *adopt.Result) (*state.Facts, error) {
	choice, err := r.choice(ctx, false, gpuNode, node, said)
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
	case v1beta1.Planning, v1beta1.Waiting:
		f.Pausable = pausable(node.Labels, r.PauseLabels)
		f.Admitted, f.Others = r.Plans.Admitted(gpuNode)
	case v1beta1.Tainted:
		if state.ReportCurrent(s) {
			errs = append(errs, r.lookAtPods(ctx, gpuNode, f), r.tryEvictions(ctx, gpuNode, f))
		}
	case v1beta1.Draining:
		errs = append(errs, r.lookAtPods(ctx, gpuNode, f))
	case v1beta1.Failed:
		errs = append(errs, r.lookAtBlockers(ctx, gpuNode, f))
	case v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack:
		if s.Node != nil && state.Answered(s) {
			errs = append(errs, r.verify(ctx, gpuNode, f))
		}
	}
	return f, errors.Join(errs...)
}

// lookAtPods finds the holders of the GPUs that change, and the paused monitoring pods.
func (r *Reconciler) lookAtPods(ctx context.Context, gpuNode *v1beta1.GPUNode, f *state.Facts) (err error) {
	sw := gpuNode.Status.Switch
	if sw == nil {
		return nil // Somebody has edited the status.
	}
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
	f.Monitoring, err = on.Monitoring(ctx, sw.PausedLabels, r.MonitoringNamespaces)
	return err
}

// choice finds the desired profile of a node, by the API server if live, otherwise by caches. A
// switch must not begin or be canceled because of an outdated cache: a new leader could switch a
// node back to an earlier profile. said is what the labels of the node say.
func (r *Reconciler) choice(ctx context.Context, live bool, gpuNode *v1beta1.GPUNode, node *corev1.Node, said *adopt.Result) (state.Choice, error) {
	if node.UID == "" {
		return state.WithoutNode(r.Policy), nil
	}
	n := state.NamedBy(gpuNode, rollout.ControlPlane(node), r.Plans.Of(gpuNode, node.Labels))
	found, err := r.find(ctx, live, n)
	if err != nil {
		return state.Choice{}, err
	}
	c := state.Choose(n, found, r.Policy)
	if said.Overridden.Reason != "" {
		c.Overridden = said.Overridden
	}
	if p := said.Problem; p.Reason != "" {
		c.Refuse(p.Reason, p.Profile, p.Message)
	}
	if c.Desired != nil {
		if why := r.Plans.Pending(gpuNode, c.Desired); why != nil {
			c.Wait(&gpuNode.Status, why)
		}
	}
	return c, nil
}

// find finds the profile that is named for a node.
func (r *Reconciler) find(ctx context.Context, live bool, n state.Named) (state.Found, error) {
	var from client.Reader = r.Client
	if live {
		from = r.Reader
	}
	name, source := n.Profile()
	var profile v1beta1.PartitionProfile
	err := from.Get(ctx, client.ObjectKey{Name: name}, &profile)
	if err == nil {
		return state.Found{Spec: &profile.Spec}, nil
	}
	if !apierrors.IsNotFound(err) {
		return state.Found{}, fmt.Errorf("read PartitionProfile %s: %w", name, err)
	}
	var found state.Found
	if source == v1beta1.FromSpec || source == v1beta1.FromLabel {
		var all v1beta1.PartitionProfileList
		if err := from.List(ctx, &all); err != nil {
			return state.Found{}, fmt.Errorf("list the PartitionProfiles: %w", err)
		}
		for i := range all.Items {
			found.Others = append(found.Others, all.Items[i].Name)
		}
	}
	return found, nil
}
