package follow

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/share"
)

const (
	// reportInterval is the minimum time between two reports while no switch waits for
	// them.
	reportInterval = 10 * time.Second
	// planBudget and applyBudget limit a plan and a change, if the controller sets no
	// deadline. Reloading a driver takes minutes.
	planBudget  = 30 * time.Second
	applyBudget = 10 * time.Minute
	// publishedPatience is how long an answer waits until the API server has the slices,
	// publishedInterval how often it checks.
	publishedPatience = 5 * time.Second
	publishedInterval = 200 * time.Millisecond
	// taintSettle is how long the caches of schedulers may take to notice taints that the
	// API server has accepted, and that of the controller to notice earlier allocations.
	taintSettle = time.Second
	// answerMargin is how long before the controller's deadline a change ends, so that
	// the answer arrives in time.
	answerMargin = 15 * time.Second
	// firstRestore and lastRestore are the first and the longest pause before restoring
	// the profile is retried.
	firstRestore = time.Minute
	lastRestore  = 10 * time.Minute
)

// Config has what a Follower works with.
type Config struct {
	// Node is the node as it was when the plugin started, Nodes the client for its GPUNode.
	Node    *corev1.Node
	Nodes   client.GPUNodes
	Machine hardware.Machine
	// Version is the version of the plugin.
	Version string
	// MemoryModes allows changes of the memory mode, which reload the driver.
	MemoryModes bool
	// NoKernelLimits says why the kernel driver does not limit the memory of shares; empty if it
	// does. The function may be nil.
	NoKernelLimits func() string
	// RebootFile records why the machine was rebooted.
	RebootFile string
	Claims     *claim.Manager
	GPUs       *inventory.GPUs
	Roster     *inventory.Roster
	Drivers    *inventory.Drivers
	Profile    *partition.Node
	Publisher  *publisher.Publisher
	Events     *telemetry.Events
	Monitor    Monitor
	Sharing    *share.State
	// TaintSettle is how long schedulers may take to notice taints; zero: a second.
	TaintSettle time.Duration
	// RestorePause is the first pause before restoring the profile is retried; zero: a
	// minute.
	RestorePause time.Duration
	// TaintsPatience is how long the first publication waits for the GPUNode; zero: 30 s.
	TaintsPatience time.Duration
}

// Monitor checks the GPUs.
type Monitor interface {
	// Change runs do while the GPUs are not checked, because their health is unknown while they
	// change, and checks them afterwards.
	Change(ctx context.Context, do func())
}

// Follower carries out switches on the node, and reports its state. All methods but Nudge,
// TakeOver, Prepared and Unprepared are for the goroutine of Run. Without a controller
// or without the CRD of GPUNode, it does nothing: claims are prepared, and profiles do not change.
type Follower struct {
	Config
	informer cache.SharedIndexInformer
	// wake starts the next step. One place is enough: a signal that waits covers everything
	// before it.
	wake chan struct{}
	// active is closed once no other plugin works on the node.
	active chan struct{}

	unprepared unprepared

	// task is the last answer, possibly of an earlier run.
	task *v1beta1.Task
	// reported is the last report, written at reportedAt to the object with UID reportedTo.
	// before is that of an earlier run; nil after the first one.
	reported   *v1beta1.NodeReport
	before     *v1beta1.NodeReport
	reportedAt time.Time
	reportedTo types.UID
	// taints are the taints for the current switch. taintsFrom has the fields of the switch that
	// they were made from; it is nil if no switch requests taints.
	taints     publisher.SwitchTaints
	taintsFrom *v1beta1.Switch
	// readVersion is the resource version of the GPUNode that had the first desired taints.
	readVersion string
	// accepted are the taints that the API server has accepted, at acceptedAt; nil if there are none.
	accepted   *v1beta1.PublishedTaints
	acceptedAt time.Time
	// reservation is the ID of the defragmentation whose end is awaited.
	reservation string
	// gpuInputs are those of the last report, by the names of the GPUs.
	gpuInputs map[string]gpuInput
	// restored identifies the GPUs and loads of drivers on which the profile was restored.
	// If that failed with notRestored, it is retried at restoreAgain, restorePause later.
	restored     string
	restoreAgain time.Time
	restorePause time.Duration
	notRestored  error
}

// New returns a Follower that does nothing before Run.
func New(c Config) *Follower {
	return &Follower{
		Config: c, informer: watchGPUNode(c.Nodes, c.Node.Name),
		wake: make(chan struct{}, 1), active: make(chan struct{}),
	}
}

// TakeOver lets Run begin: of two plugins, the one that publishes the GPUs also changes them
// and reports. It is called once.
func (f *Follower) TakeOver() {
	close(f.active)
}

// Nudge starts the next step soon.
func (f *Follower) Nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. During a rolling update it waits until the older plugin, which may
// be changing GPUs, has ended.
func (f *Follower) Run(ctx context.Context) {
	nudge := func(any) { f.Nudge() }
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: nudge, UpdateFunc: func(_, _ any) { f.Nudge() }, DeleteFunc: nudge})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the GPUNode, so profiles are not applied")
		return
	}
	go f.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
		return
	}
	select {
	case <-f.active:
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

// step reads the GPUNode once, and does what it asks for.
func (f *Follower) step(ctx context.Context) {
	node, err := f.get(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot create the GPUNode of the node; check that its CRD is installed", "gpunode", f.Node.Name)
		return
	}
	if node == nil {
		return // it was just created, and the watch continues
	}
	if f.isOlder(node) {
		return // the watch will deliver the version that was read at the start
	}
	if f.task == nil && node.Status.Node != nil {
		f.task = node.Status.Node.Task // of an earlier run
	}
	if f.reportedTo != node.UID {
		// The GPUNode was deleted and created again, without the report.
		f.reported, f.reportedAt, f.reportedTo = nil, time.Time{}, node.UID
	}
	if f.reported == nil {
		f.before = node.Status.Node
	}
	if s := node.Status.State; s == v1beta1.Idle || s == v1beta1.Failed {
		f.Profile.SetDecided()
	}
	f.Publisher.SetSwitchTaints(ctx, f.desiredTaints(ctx, &node.Status))
	f.reserve(ctx, node.Status.Defragmentation)
	f.Publisher.ClaimsChanged(ctx)
	f.restore(ctx)
	if node.Status.AwaitsPlugin(f.task) {
		task := f.answer(ctx, node.Status.Switch, node.Status.State)
		if ctx.Err() != nil {
			return // not an answer: the next plugin continues
		}
		if task != nil {
			f.task = task
		}
	}
	f.confirmTaints(ctx)
	f.report(ctx, node.Status.State)
}

// isOlder reports whether a GPUNode is older than the one that had the first desired taints: a watch can
// begin in the past.
func (f *Follower) isOlder(node *v1beta1.GPUNode) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, f.readVersion)
	return err == nil && order < 0
}

// get returns the node's GPUNode, or creates it and returns nil.
func (f *Follower) get(ctx context.Context) (*v1beta1.GPUNode, error) {
	object, _, _ := f.informer.GetStore().GetByKey(f.Node.Name) // it never fails
	if node, ok := object.(*v1beta1.GPUNode); ok {
		return node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := f.Nodes.Create(ctx, newGPUNode(f.Node), metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		f.Publisher.SetSwitchTaints(ctx, publisher.SwitchTaints{}) // a new one requests no taints
	case apierrors.IsAlreadyExists(err):
		err = nil // the watch will deliver it
	}
	return nil, err
}
