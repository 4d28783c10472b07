package follow

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// reportInterval is the least time between two reports while nobody waits for
	// them: claims come and go faster than anybody reads.
	reportInterval = 10 * time.Second
	// planBudget and applyBudget are how long the plugin may work on an answer, where the
	// controller does not say. A driver that is loaded anew takes minutes.
	planBudget  = 30 * time.Second
	applyBudget = 10 * time.Minute
	// publishedPatience is how long an answer waits for the API server to have the
	// slices, publishedInterval how often it looks.
	publishedPatience = 5 * time.Second
	publishedInterval = 50 * time.Millisecond
	// taintSettle is how long schedulers may take to notice taints that the API server
	// has accepted, and the controller to notice claims that were allocated before: both
	// read from caches.
	taintSettle = time.Second
	// maxTaskMessage is the length in bytes of a message that the GPUNode accepts.
	maxTaskMessage = 32 << 10
	// answerMargin is what is left of the controller's patience for the answer itself.
	answerMargin = 15 * time.Second
	// firstRestore and lastRestore are how long it is waited until what could not be put
	// back is tried again, at first and at most.
	firstRestore = time.Minute
	lastRestore  = 10 * time.Minute
)

// Config is what a follower works on.
type Config struct {
	// Node is the node as it was when the plugin started, Nodes has its GPUNode.
	Node    *corev1.Node
	Nodes   client.GPUNodes
	Machine hardware.Machine
	// MemoryModes tells whether a driver may be loaded anew.
	MemoryModes bool
	// RebootFile has what was asked of the machine before it rebooted.
	RebootFile string
	Claims     *claim.Manager
	GPUs       *inventory.GPUs
	Roster     *inventory.Roster
	Hardware   *drivers.Set
	Profile    *partition.Node
	Publisher  *publisher.Publisher
	Events     *telemetry.Events
	// Looking is held by who looks at all GPUs, or changes them; Look is called with it.
	Looking sync.Locker
	Look    func(context.Context) error
	// Waiting is how a GPU is to be shared once no share of it is held; empty: as it is.
	Waiting func(gpuID string) string
	// Uninstalling tells whether Tranche is being uninstalled.
	Uninstalling func() bool
	// TaintSettle is how long schedulers may take to notice taints; zero: a second.
	TaintSettle time.Duration
	// RestorePause is how long after the first try what was lost is put back again; zero:
	// a minute.
	RestorePause time.Duration
	// OrderPatience is how long the first publication waits for the GPUNode; zero: 30 s.
	OrderPatience time.Duration
}

// Follower does what the controller asks of the node, and reports how the node is.
// One goroutine runs it. Without a controller, or without the definition of GPUNode in
// the API server, nothing is asked: claims are served and shares stay as they are.
type Follower struct {
	Config
	informer cache.SharedIndexInformer
	// wake tells of something new. One place is enough: a signal that waits covers
	// everything before it.
	wake chan struct{}
	// turn is closed once no other plugin works on the node.
	turn chan struct{}

	// decided is set once the controller has nothing to do on the node any more, or
	// cannot.
	decided atomic.Bool

	// task is the last answer, maybe of an earlier run.
	task *v1alpha1.Task
	// reported is what was written last, at reportedAt, to the object reportedTo.
	reported   *v1alpha1.NodeReport
	reportedAt time.Time
	reportedTo types.UID
	// order is what orderedBy, a switch without what does not matter here, orders; nil:
	// no switch orders taints.
	order     publisher.Order
	orderedBy *v1alpha1.Switch
	// readVersion is the version of the GPUNode that the first order was taken from.
	readVersion string
	// taints are those that the API server has accepted, since taintedAt; nil: none.
	taints    *v1alpha1.PublishedTaints
	taintedAt time.Time
	// gpuBases are those of the last report, by the names of the GPUs.
	gpuBases map[string]gpuInput
	// restored is the GPUs and loads of drivers for which it was looked whether
	// something was lost. What could not be put back is tried again at restoreAgain, a
	// pause later; notRestored is why.
	restored     string
	restoreAgain time.Time
	restorePause time.Duration
	notRestored  error
}

// New follows once run is called.
func New(c Config) *Follower {
	return &Follower{
		Config: c, informer: watchGPUNode(c.Nodes, c.Node.Name),
		wake: make(chan struct{}, 1), turn: make(chan struct{}),
	}
}

// TakeOver lets the follower begin: of two plugins, the one that publishes the GPUs
// is the one that changes them, and that reports. It is called once.
func (f *Follower) TakeOver() {
	close(f.turn)
}

// Undecided tells whether the controller has yet to bring the node to what it should
// follow, for the first time.
func (f *Follower) Undecided() bool {
	return f.Profile.Applied().Hash == "" && !f.decided.Load()
}

// Nudge has the follower look at everything again, soon.
func (f *Follower) Nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run follows until ctx ends. During a rolling update it waits until the older plugin,
// which may be in the midst of a change, has ended.
func (f *Follower) Run(ctx context.Context) {
	nudge := func(any) { f.Nudge() }
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: nudge, UpdateFunc: func(_, _ any) { f.Nudge() }, DeleteFunc: nudge})
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
func (f *Follower) step(ctx context.Context) {
	if f.Uninstalling() {
		return // the GPUNode is taken away, and must not come back
	}
	node, err := f.get(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The node's GPUNode cannot be created; is the CRD there?", "gpunode", f.Node.Name)
		return
	}
	if node == nil {
		return // it was just created: the watch tells
	}
	if f.isOlder(node) {
		return // the watch brings what was read at the start, or something newer
	}
	if f.task == nil && node.Status.Node != nil {
		f.task = node.Status.Node.Task // of an earlier run
	}
	if f.reportedTo != node.UID {
		// Somebody has deleted the one that had the report, and made it anew.
		f.reported, f.reportedAt, f.reportedTo = nil, time.Time{}, node.UID
	}
	if s := node.Status.State; s == v1alpha1.Idle || s == v1alpha1.Failed {
		f.decided.Store(true)
	}
	f.Publisher.SetOrder(ctx, f.taintOrder(ctx, &node.Status))
	f.Publisher.ClaimsChanged(ctx)
	f.restore(ctx)
	if node.Status.AwaitsPlugin(f.task) {
		task := f.answer(ctx, node.Status.Switch, node.Status.State)
		if ctx.Err() != nil {
			return // that it was not finished is no answer: the next plugin goes on
		}
		if task != nil {
			f.task = task
		}
	}
	f.confirmTaints(ctx)
	f.report(ctx, node.Status.State)
}

// isOlder tells whether a GPUNode is older than the one from which the first order was
// taken: the watch can begin in the past.
func (f *Follower) isOlder(node *v1alpha1.GPUNode) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, f.readVersion)
	return err == nil && order < 0
}

// get finds the node's GPUNode, and creates it where there is none.
func (f *Follower) get(ctx context.Context) (*v1alpha1.GPUNode, error) {
	object, exists, err := f.informer.GetStore().GetByKey(f.Node.Name)
	if err != nil {
		return nil, err
	}
	if node, ok := object.(*v1alpha1.GPUNode); ok && exists {
		return node, nil
	}
	f.reported, f.reportedAt = nil, time.Time{} // a new one knows nothing
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = f.Nodes.Create(ctx, newGPUNode(f.Node), metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		f.Publisher.SetOrder(ctx, publisher.Order{}) // there was none, so nothing orders taints
	case apierrors.IsAlreadyExists(err):
		err = nil // the watch is late
	}
	return nil, err
}

// answer does what a switch asks for. It is nil where that is not known yet.
func (f *Follower) answer(ctx context.Context, s *v1alpha1.Switch, state v1alpha1.State) *v1alpha1.Task {
	logger := klog.FromContext(ctx).WithValues("switch", s.ID, "state", state)
	start := time.Now()
	allowReboot := s.Policy.Reboot == v1alpha1.RebootAllowed
	var task v1alpha1.Task
	switch state {
	case v1alpha1.Planning:
		ctx, cancel := context.WithTimeout(ctx, planBudget)
		defer cancel()
		task = f.Profile.Plan(ctx, s.To)
	case v1alpha1.Tainted:
		if !f.awaitTaints(ctx) {
			time.AfterFunc(taintSettle, f.Nudge)
			return nil
		}
		if task = f.planAgain(ctx, s); task.Phase == "" {
			return nil
		}
	case v1alpha1.Applying:
		task = f.apply(ctx, s, func(ctx context.Context) v1alpha1.Task { return f.Profile.Apply(ctx, s.To, allowReboot) })
	case v1alpha1.Rebooting:
		done := f.reboot(ctx, s)
		if done == nil {
			return nil
		}
		task = *done
	default:
		task = f.apply(ctx, s, func(ctx context.Context) v1alpha1.Task { return f.Profile.RollBack(ctx, s.From, allowReboot) })
	}
	task.Switch, task.State, task.Message = s.ID, state, text.Cut(task.Message, maxTaskMessage)
	if state == v1alpha1.Tainted {
		task.Order = s.Order
	}
	logger.Info("Answered", "phase", task.Phase, "message", task.Message, "took", time.Since(start))
	return &task
}

// planAgain plans once nothing new can be allocated on the GPUs of the switch. During a
// rolling update, claims that another plugin has prepared count, too.
func (f *Follower) planAgain(ctx context.Context, s *v1alpha1.Switch) v1alpha1.Task {
	ctx, cancel := context.WithTimeout(ctx, planBudget)
	defer cancel()
	if err := f.Claims.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The claims of this node cannot be read, so the plan is not made yet")
		time.AfterFunc(taintSettle, f.Nudge)
		return v1alpha1.Task{}
	}
	return f.Profile.Plan(ctx, s.To)
}

// apply changes the GPUs. Nobody looks at them meanwhile: what they say while they
// change says nothing of their health.
func (f *Follower) apply(ctx context.Context, s *v1alpha1.Switch, change func(context.Context) v1alpha1.Task) v1alpha1.Task {
	f.Looking.Lock()
	defer f.Looking.Unlock()
	task := bounded(ctx, budgetOf(s), change)
	if err := f.Look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The GPUs cannot be listed after they were changed")
	}
	f.Publisher.Publish(ctx)
	f.awaitPublished(ctx)
	return task
}

// awaitPublished waits until the API server has the slices, for a while. The controller
// looks at them once more: who says that it is done before they are there costs it
// another round.
func (f *Follower) awaitPublished(ctx context.Context) {
	if !f.Publisher.IsMine() || f.Publisher.IsWithdrawn() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishedPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, publishedInterval, true, func(ctx context.Context) (bool, error) {
		published, err := f.Publisher.Stored(ctx)
		return err == nil && f.Publisher.Matches(published), nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The API server does not have all slices yet")
	}
}

// budgetOf is how long a change of the GPUs may take: a little less than the controller
// waits for it, so that it hears how far the change came. Its clock need not be ours.
func budgetOf(s *v1alpha1.Switch) time.Duration {
	if s.Deadline == nil {
		return applyBudget
	}
	all := s.Deadline.Sub(s.Since.Time)
	if all <= 0 {
		return applyBudget
	}
	return all - min(all/10, answerMargin)
}

// bounded runs f with a deadline.
func bounded[T any](ctx context.Context, budget time.Duration, f func(context.Context) T) T {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return f(ctx)
}

// restore puts back what a reboot or a new load of a driver has taken, once for each,
// and again, with pauses, what could not be: nobody else asks for it, since the node
// says that it follows the profile.
func (f *Follower) restore(ctx context.Context) {
	now := f.loads()
	again := !f.restoreAgain.IsZero() && !time.Now().Before(f.restoreAgain)
	if now == f.restored && !again {
		return
	}
	if now != f.restored {
		f.restorePause = 0
	}
	f.Looking.Lock()
	defer f.Looking.Unlock()
	err := bounded(ctx, applyBudget, f.Profile.Restore)
	if ctx.Err() != nil {
		return // the plugin ends
	}
	f.tellRestored(ctx, err)
	if err := f.Look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The GPUs cannot be listed")
	}
	f.restored = f.loads()
}

// tellRestored says once why something could not be put back, and when it is tried again.
func (f *Follower) tellRestored(ctx context.Context, err error) {
	if err == nil {
		f.restoreAgain, f.notRestored = time.Time{}, nil
		return
	}
	f.restorePause = min(max(2*f.restorePause, cmp.Or(f.RestorePause, firstRestore)), lastRestore)
	f.restoreAgain = time.Now().Add(f.restorePause)
	if known := f.notRestored; known == nil || known.Error() != err.Error() {
		f.Events.Warn(ctx, v1alpha1.EventProfileNotRestored, "The GPUs of this node are not all as their profile wants them, which is tried again: "+err.Error())
	}
	f.notRestored = err
}

// loads identifies the GPUs that are there, and the loads of their drivers.
func (f *Follower) loads() string {
	text := ""
	for _, g := range f.Roster.Answering() {
		text += g.PCIAddress + " " + f.Hardware.LoadID(g.PCIAddress) + "\n"
	}
	return text
}

// report writes how the node is, if that has changed: at once while a switch is under
// way, otherwise not too often.
func (f *Follower) report(ctx context.Context, state v1alpha1.State) {
	busy := state != "" && state != v1alpha1.Idle && state != v1alpha1.Failed
	tainted := f.reported != nil && f.reported.Taints != nil
	if !busy && tainted == (f.taints != nil) && time.Since(f.reportedAt) < reportInterval {
		return
	}
	report := f.nodeReport(ctx)
	report.Task, report.Taints = f.task, f.taints
	if apiequality.Semantic.DeepEqual(report, f.reported) {
		return
	}
	if err := writeReport(ctx, f.Nodes, f.Node.Name, report); err != nil {
		klog.FromContext(ctx).Error(err, "How the node is cannot be reported; it is tried again")
		return
	}
	f.reported, f.reportedAt = report, time.Now()
}
