package defragment

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

const (
	// idleInterval is the time between two steps without an attempt, busyInterval with one.
	idleInterval = 15 * time.Second
	busyInterval = time.Second
	// stepTimeout limits one step.
	stepTimeout = 2 * time.Minute
)

// Options say when pods are moved, and how many.
type Options struct {
	// After is how long a pod waits before room is made for it. 0 means never.
	After time.Duration
	// MaxPods is the maximum number of pods that are moved for one pod.
	MaxPods int
	// PerHour is the maximum number of evictions in an hour, in the whole cluster.
	PerHour int
	// Clock is the clock to use. The default is the clock of the machine.
	Clock    clock.PassiveClock
	Registry prometheus.Registerer
}

// Defragmenter makes room for waiting pods. It is for one goroutine.
type Defragmenter struct {
	Options
	// Client reads GPUNodes and ResourceClaims from a cache, and writes. Reader reads from the API
	// server.
	Client client.Client
	Reader client.Reader
	Events events.EventRecorder
	// Evict evicts a pod, or only asks whether that is allowed if dryRun is set. It returns why the API
	// server refuses the eviction, empty if it does not.
	Evict func(ctx context.Context, pod *drain.Pod, dryRun bool) (refusal string, err error)
	// HasRules reports whether the API server serves DeviceTaintRules.
	HasRules bool
	// Settle is how long schedulers may take to notice taints.
	Settle time.Duration

	metrics *metrics
	// maxDevices limits how many devices are read for one search.
	maxDevices int
	// searches counts the searches, so that each plans for other pods. lastNode is the last node that was
	// searched.
	searches int
	lastNode string
	// nextSearch is when the next search may begin.
	nextSearch time.Time
	// taintedSince has the time since when the API server has the taints of an attempt, by its ID.
	taintedSince map[string]time.Time
	// listedAt is when the pods of a namespace were last listed.
	listedAt time.Time
}

// New returns a Defragmenter.
func New(c client.Client, reader client.Reader, recorder events.EventRecorder, o Options) *Defragmenter {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	d := &Defragmenter{
		Options: o, Client: c, Reader: reader, Events: recorder, HasRules: true, Settle: 2 * time.Second, metrics: newMetrics(o.Registry),
		maxDevices: maxDevices, taintedSince: map[string]time.Time{},
	}
	drainer := &drain.Drainer{Client: c, Reader: reader, Clock: o.Clock, Count: func(string) {}}
	d.Evict = drainer.Ask
	return d
}

// Setup adds a Defragmenter to a manager. Only the leader runs it.
func Setup(mgr manager.Manager, o Options) error {
	d := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(names.ControllerName), o)
	var err error
	if d.HasRules, err = cluster.ServesRules(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(d.run)); err != nil {
		return fmt.Errorf("add defragmentation to the manager: %w", err)
	}
	return nil
}

func (d *Defragmenter) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		busy, err := d.Step(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot make room for waiting pods; retrying")
		}
		interval := idleInterval
		if busy && err == nil {
			interval = busyInterval
		}
		timer.Reset(interval)
	}
}

// Step continues the attempt of the cluster, or begins one. It returns whether there is one.
func (d *Defragmenter) Step(ctx context.Context) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var nodes v1beta1.GPUNodeList
	if err := d.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list GPUNodes: %w", err)
	}
	active, now := "", d.Clock.Now()
	for i := range nodes.Items {
		name, a := nodes.Items[i].Name, nodes.Items[i].Status.Defragmentation
		switch {
		case a == nil || a.EndTime != nil:
		case a.Active(now):
			active = name
		default:
			// It reserves nothing any more. If it cannot be ended now, others need not wait for that.
			if _, err := d.reconcile(ctx, name); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot end a defragmentation after its deadline; retrying", "gpunode", name)
			}
		}
	}
	if active != "" {
		return d.reconcile(ctx, active)
	}
	clear(d.taintedSince)
	return d.search(ctx, nodes.Items)
}
