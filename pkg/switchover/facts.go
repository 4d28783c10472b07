package switchover

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// facts puts in force and looks at what the node's state needs. What could not be done
// or seen is an error, and in the facts, too, where there are any: a state ends at its
// deadline whatever is refused to the controller.
func (r *Reconciler) facts(ctx context.Context, gpuNode *v1alpha1.GPUNode, node *corev1.Node) (*Facts, error) {
	choice, err := r.choice(ctx, gpuNode, node)
	if err != nil {
		return nil, err
	}
	f := &Facts{Now: r.Clock.Now(), Choice: choice, Evicted: r.memory.evicted(gpuNode.Name, 0)}
	s := &gpuNode.Status
	var errs []error
	if Tainting(s) {
		r.Budget.Hold(gpuNode.Name)
		f.Trouble, err = r.enforce(ctx, gpuNode, node)
		f.Tainted = err == nil
		if err != nil {
			f.Trouble = err.Error()
			errs = append(errs, err)
		}
	}
	switch s.State {
	case v1alpha1.Planning, v1alpha1.Waiting:
		f.Pausable = pausable(node.Labels, r.PauseLabels)
		if s.State == v1alpha1.Waiting || planChanges(s) {
			if err := r.countNodes(ctx); err != nil {
				return nil, err
			}
			f.Granted, f.Others = r.Budget.Take(gpuNode.Name)
		}
	case v1alpha1.Tainted, v1alpha1.Draining:
		errs = append(errs, r.lookAtPods(ctx, gpuNode, f))
	case v1alpha1.Applying, v1alpha1.Rebooting, v1alpha1.Verifying, v1alpha1.RollingBack:
		if s.Node != nil && answered(s) {
			if f.Differs, err = r.differs(ctx, gpuNode.Name, s.Node); err != nil {
				f.Differs = err.Error()
				errs = append(errs, err)
			}
		}
	}
	return f, errors.Join(errs...)
}

// planChanges tells whether the plugin has planned a change that disturbs cards.
func planChanges(s *v1alpha1.GPUNodeStatus) bool {
	return s.Switch != nil && s.Node != nil && s.Node.Task != nil && s.Node.Task.Switch == s.Switch.ID &&
		s.Node.Task.Phase == v1alpha1.TaskPlanned && len(s.Node.Task.Changes) > 0
}

// answered tells whether the plugin says that it is done.
func answered(s *v1alpha1.GPUNodeStatus) bool {
	return s.Switch != nil && s.Node.Task != nil && s.Node.Task.Switch == s.Switch.ID && s.Node.Task.Phase == v1alpha1.TaskDone
}

// lookAtPods finds who is on the cards that change.
func (r *Reconciler) lookAtPods(ctx context.Context, gpuNode *v1alpha1.GPUNode, f *Facts) (err error) {
	sw := gpuNode.Status.Switch
	pods := &podReader{Reader: r.Reader, node: gpuNode.Name}
	f.Unseen = ""
	defer func() {
		if err != nil {
			f.Unseen = err.Error()
		}
	}()
	f.Holders, err = r.holders(ctx, pods, sw.Cards, keptDevices(sw, gpuNode.Status.Node))
	if err != nil {
		return err
	}
	f.Clients, err = r.clientsOn(ctx, pods, sw.Paused)
	return err
}

// countEvery is how old the number of nodes can be that a percentage is of.
const countEvery = 5 * time.Second

// countNodes tells the budget how many nodes there are.
func (r *Reconciler) countNodes(ctx context.Context) error {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	now := r.Clock.Now()
	if now.Sub(r.memory.counted) < countEvery {
		return nil
	}
	var all v1alpha1.GPUNodeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("count the GPUNodes: %w", err)
	}
	r.Budget.SetNodes(len(all.Items))
	r.memory.counted = now
	return nil
}

// choice looks up the profile that counts for a node.
func (r *Reconciler) choice(ctx context.Context, gpuNode *v1alpha1.GPUNode, node *corev1.Node) (Choice, error) {
	if node.UID == "" {
		// Its labels are not known. A node that registers anew is without them for a
		// moment, and must not be switched for that.
		return Choice{
			Policy: withDefaults(nil, r.Policy), Keep: ReasonNodeNotFound,
			Message: "there is no node of that name, so nobody knows what its labels want",
		}, nil
	}
	n := namedBy(gpuNode, node.Labels)
	name, source := n.profile()
	var profile v1alpha1.PartitionProfile
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &profile)
	if err == nil {
		return choose(n, &profile, nil, r.Policy), nil
	}
	if !apierrors.IsNotFound(err) {
		return Choice{}, fmt.Errorf("read PartitionProfile %s: %w", name, err)
	}
	var others []string
	if source != v1alpha1.FromDefault {
		var all v1alpha1.PartitionProfileList
		if err := r.Client.List(ctx, &all); err != nil {
			return Choice{}, fmt.Errorf("list the PartitionProfiles: %w", err)
		}
		for i := range all.Items {
			others = append(others, all.Items[i].Name)
		}
	}
	return choose(n, nil, others, r.Policy), nil
}
