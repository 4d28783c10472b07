package node

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
)

const (
	// reportInterval is the least time between two reports while nobody waits for
	// them: claims come and go faster than anybody reads.
	reportInterval = 10 * time.Second
	// planBudget and applyBudget are how long the plugin may work on an answer. A
	// driver that is loaded anew takes minutes.
	planBudget  = 30 * time.Second
	applyBudget = 10 * time.Minute
	// publishedPatience is how long an answer waits for the API server to have the
	// slices, publishedInterval how often it looks.
	publishedPatience = 5 * time.Second
	publishedInterval = 50 * time.Millisecond
)

// follower does what the controller asks of the node, and reports how the node is.
// One goroutine runs it. A nil follower does nothing: there is no controller.
type follower struct {
	*plugin
	nodes    client.GPUNodes
	informer cache.SharedIndexInformer
	// wake tells of something new. One place is enough: a signal that waits covers
	// everything before it.
	wake chan struct{}
	// turn is closed once no other plugin works on the node.
	turn chan struct{}

	// task is the last answer, maybe of an earlier run.
	task *v1alpha1.Task
	// reported is what was written last, at reportedAt.
	reported   *v1alpha1.NodeReport
	reportedAt time.Time
	// restored is the cards and loads of drivers for which it was looked whether
	// something was lost.
	restored string
}

func newFollower(p *plugin) *follower {
	if p.GPUNodes == nil {
		return nil
	}
	return &follower{plugin: p, nodes: p.GPUNodes, informer: watchGPUNode(p.GPUNodes, p.NodeName), wake: make(chan struct{}, 1), turn: make(chan struct{})}
}

// takeOver lets the follower begin: of two plugins, the one that publishes the cards
// is the one that changes them, and that reports. It is called once.
func (f *follower) takeOver() {
	if f != nil {
		close(f.turn)
	}
}

// nudge has the follower look at everything again, soon.
func (f *follower) nudge() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run follows until ctx ends. During a rolling update it waits until the older plugin,
// which may be in the midst of a change, has ended.
func (f *follower) run(ctx context.Context) {
	if f == nil {
		return
	}
	nudge := func(any) { f.nudge() }
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: nudge, UpdateFunc: func(_, _ any) { f.nudge() }, DeleteFunc: nudge})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The GPUNode cannot be watched")
		return
	}
	go f.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
		return
	}
	select {
	case <-f.turn:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		f.step(ctx)
		select {
		case <-f.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// step looks at the GPUNode once, and does what it asks for.
func (f *follower) step(ctx context.Context) {
	if f.uninstallation.active() {
		return // the GPUNode is taken away, and must not come back
	}
	node, err := f.get(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The node's GPUNode cannot be created; is the CRD there?", "gpunode", f.NodeName)
		return
	}
	if node == nil {
		return // it was just created: the watch tells
	}
	if f.task == nil && node.Status.Node != nil {
		f.task = node.Status.Node.Task // of an earlier run
	}
	f.restore(ctx)
	if s := node.Status.Switch; s != nil && f.asks(s, node.Status.State) {
		if task := f.answer(ctx, s, node.Status.State); task != nil {
			f.task = task
		}
	}
	f.report(ctx, node.Status.State)
}

// get finds the node's GPUNode, and creates it where there is none.
func (f *follower) get(ctx context.Context) (*v1alpha1.GPUNode, error) {
	object, exists, err := f.informer.GetStore().GetByKey(f.NodeName)
	if err != nil {
		return nil, err
	}
	if node, ok := object.(*v1alpha1.GPUNode); ok && exists {
		return node, nil
	}
	f.reported, f.reportedAt = nil, time.Time{} // a new one knows nothing
	_, err = f.nodes.Create(ctx, newGPUNode(f.node.first), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return nil, err
}

// asks tells whether a switch waits for an answer of the plugin.
func (f *follower) asks(s *v1alpha1.Switch, state v1alpha1.State) bool {
	switch state {
	case v1alpha1.Planning, v1alpha1.Applying, v1alpha1.Rebooting, v1alpha1.RollingBack:
	default:
		return false
	}
	return f.task == nil || f.task.Switch != s.ID || f.task.State != state
}

// answer does what a switch asks for. It is nil where that is not known yet.
func (f *follower) answer(ctx context.Context, s *v1alpha1.Switch, state v1alpha1.State) *v1alpha1.Task {
	logger := klog.FromContext(ctx).WithValues("switch", s.ID, "state", state)
	start := time.Now()
	allowReboot := s.Policy.Reboot == v1alpha1.RebootAllowed
	var task v1alpha1.Task
	switch state {
	case v1alpha1.Planning:
		ctx, cancel := context.WithTimeout(ctx, planBudget)
		defer cancel()
		task = f.profile.Plan(ctx, s.To)
	case v1alpha1.Applying:
		task = f.apply(ctx, func(ctx context.Context) v1alpha1.Task { return f.profile.Apply(ctx, s.To, allowReboot) })
	case v1alpha1.Rebooting:
		done := f.reboot(ctx, s)
		if done == nil {
			return nil
		}
		task = *done
	default:
		task = f.apply(ctx, func(ctx context.Context) v1alpha1.Task { return f.profile.RollBack(ctx, s.From, allowReboot) })
	}
	task.Switch, task.State = s.ID, state
	logger.Info("Answered", "phase", task.Phase, "message", task.Message, "took", time.Since(start))
	return &task
}

// apply changes the cards. Nobody looks at them meanwhile: what they say while they
// change says nothing of their health.
func (f *follower) apply(ctx context.Context, change func(context.Context) v1alpha1.Task) v1alpha1.Task {
	f.looking.Lock()
	defer f.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, applyBudget)
	defer cancel()
	task := change(ctx)
	if err := f.look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The cards cannot be listed after they were changed")
	}
	f.publisher.publish(ctx)
	f.awaitPublished(ctx)
	return task
}

// awaitPublished waits until the API server has the slices, for a while. The controller
// looks at them once more: who says that it is done before they are there costs it
// another round.
func (f *follower) awaitPublished(ctx context.Context) {
	if !f.publisher.isMine() || f.publisher.isWithdrawn() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishedPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, publishedInterval, true, func(ctx context.Context) (bool, error) {
		published, err := f.ownSlices(ctx)
		return err == nil && f.publisher.matches(published), nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The API server does not have all slices yet")
	}
}

// restore puts back what a reboot or a new load of a driver has taken, once for each.
func (f *follower) restore(ctx context.Context) {
	now := f.loads()
	if now == f.restored {
		return
	}
	f.looking.Lock()
	defer f.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, applyBudget)
	defer cancel()
	if err := f.profile.Restore(ctx); err != nil {
		f.events.warn(ctx, "ProfileNotRestored", "The GPUs of this node are not all as their profile wants them: "+err.Error())
	}
	if err := f.look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The cards cannot be listed")
	}
	f.restored = f.loads()
}

// loads identifies the cards that are there, and the loads of their drivers.
func (f *follower) loads() string {
	text := ""
	for _, card := range f.roster.answering() {
		text += card.PCIAddress + " " + f.hardware.LoadID(card.PCIAddress) + "\n"
	}
	return text
}

// report writes how the node is, if that has changed: at once while a switch is under
// way, otherwise not too often.
func (f *follower) report(ctx context.Context, state v1alpha1.State) {
	report := f.nodeReport(ctx)
	report.Task = f.task
	busy := state != "" && state != v1alpha1.Idle && state != v1alpha1.Failed
	if apiequality.Semantic.DeepEqual(report, f.reported) || !busy && time.Since(f.reportedAt) < reportInterval {
		return
	}
	if err := writeReport(ctx, f.nodes, f.NodeName, report); err != nil {
		klog.FromContext(ctx).Error(err, "How the node is cannot be reported; it is tried again")
		return
	}
	f.reported, f.reportedAt = report, time.Now()
}
