package switchover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
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

// lead begins as soon as the controller leads, also where there is no node to look at:
// the metrics tell that it works.
func (r *Reconciler) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.begin(ctx)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "The controller leads, and cannot begin; trying again")
		select {
		case <-ctx.Done():
		case <-time.After(lastErrorRetry):
		}
	}
	return nil
}

// begin fills the budget from the API server, once, before the first node is looked
// at.
func (r *Reconciler) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	if r.memory.begun {
		return nil
	}
	var all v1alpha1.GPUNodeList
	if err := r.Reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list the GPUNodes to see which are being switched: %w", err)
	}
	var taken []string
	for i := range all.Items {
		if Tainting(&all.Items[i].Status) {
			taken = append(taken, all.Items[i].Name)
		}
	}
	r.Budget.Fill(taken, len(all.Items))
	r.memory.begun = true
	return nil
}

// memory is what a controller remembers while it runs, and can do without.
type memory struct {
	// mu guards what follows.
	mu sync.Mutex
	// begun: the budget was filled.
	begun bool
	// counted is when the nodes were counted.
	counted time.Time
	// last is when each node's status was written last.
	last map[string]time.Time
	// clashed counts each node's rounds in a row that met a conflict.
	clashed map[string]int
	// left counts the pods of each node that were asked to leave and that no status
	// tells of yet.
	left map[string]int32
}

const (
	// tellEvery and tellAtMost are how often a message that has changed is written: in
	// the beginning of a state often, later less so, each time after half as long
	// again as the state has lasted.
	tellEvery  = 5 * time.Second
	tellAtMost = 10 * time.Minute
)

// leads tells whether the controller has begun to look at nodes.
func (m *memory) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun
}

// mayTell is when a message may be written again.
func (m *memory) mayTell(node string, now, since time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.last[node]
	if !ok {
		return now
	}
	wait := tellEvery
	if !since.IsZero() {
		wait = min(max(wait, last.Sub(since)/2), tellAtMost)
	}
	return last.Add(wait)
}

// told notes that a node's status was written.
func (m *memory) told(node string, now time.Time, switching bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]time.Time{}
	}
	m.last[node] = now
	delete(m.left, node)
	if !switching {
		// A node that rests has its next message written at once.
		delete(m.last, node)
	}
}

// evicted counts pods that were asked to leave, and says how many it has counted.
func (m *memory) evicted(node string, more int32) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[string]int32{}
	}
	if more > 0 {
		m.left[node] += more
	}
	return m.left[node]
}

// manyClashes is more conflicts in a row than come of several writers.
const manyClashes = 10

// clashes tells whether a node's round has met a conflict after which it is looked again
// at once. Many in a row are an error as others are: somebody's webhook may answer so.
func (m *memory) clashes(node string, conflict bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !conflict {
		delete(m.clashed, node)
		return false
	}
	if m.clashed == nil {
		m.clashed = map[string]int{}
	}
	m.clashed[node]++
	return m.clashed[node] <= manyClashes
}

func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clashed, node)
	delete(m.last, node)
	delete(m.left, node)
}

// unchanged tells whether a patch with a lock says nothing.
func unchanged(patch client.Patch, o client.Object) (bool, error) {
	data, err := patch.Data(o)
	if err != nil {
		return false, fmt.Errorf("compare what is there with what should be: %w", err)
	}
	// The lock itself is all that is in there.
	return string(data) == fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, o.GetResourceVersion()), nil
}

func sameTaintsAndLabels(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) && equality.Semantic.DeepEqual(a.Labels, b.Labels)
}
