package follow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
