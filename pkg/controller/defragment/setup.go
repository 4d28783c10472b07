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

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

const (
	// idlePause is the time between two looks at the waiting pods, busyPause between two looks at an
	// attempt.
	idlePause = 15 * time.Second
	busyPause = time.Second
	// stepTimeout limits one step.
	stepTimeout = 2 * time.Minute
)

// Options say when pods are moved, and how many.
type Options struct {
	// After is how long a pod waits before room is made for it. 0: never.
	After time.Duration
	// MaxPods is how many pods are moved for one pod at most.
	MaxPods int
	// PerHour is how many pods are evicted in an hour at most, in the whole cluster.
	PerHour int
	// Clock is the clock, nil: that of the machine.
	Clock    clock.PassiveClock
	Registry prometheus.Registerer
}

// Defragmenter makes room for waiting pods. It is for one goroutine.
type Defragmenter struct {
	Options
	// Client reads GPUNodes from a cache, and writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	Events events.EventRecorder
	// Evict evicts a pod, or says why that is refused; a dry run only asks.
	Evict func(ctx context.Context, pod *drain.Pod, dry bool) (refusal string, err error)
	// HasRules: the API server serves DeviceTaintRules.
	HasRules bool
	// Settle is how long schedulers may take to notice taints.
	Settle time.Duration

	metrics *metrics
	// turn counts the looks.
	turn int
	// reserved is since when the API server has the taints of an attempt.
	reserved map[string]time.Time
	// next is when waiting pods are looked at again.
	next time.Time
}

// New makes a Defragmenter.
func New(c client.Client, reader client.Reader, recorder events.EventRecorder, o Options) *Defragmenter {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	d := &Defragmenter{
		Options: o, Client: c, Reader: reader, Events: recorder, HasRules: true, Settle: 2 * time.Second, metrics: newMetrics(o.Registry),
		reserved: map[string]time.Time{},
	}
	drainer := &drain.Drainer{Client: c, Reader: reader, Clock: o.Clock, Count: func(string) {}}
	d.Evict = drainer.Ask
	return d
}

// Setup adds a Defragmenter to a manager. Only the controller that leads runs it.
func Setup(mgr manager.Manager, o Options) error {
	d := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(v1alpha1.ControllerName), o)
	var err error
	if d.HasRules, err = cluster.ServesRules(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(d.run)); err != nil {
		return fmt.Errorf("add what makes room for waiting pods: %w", err)
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
			klog.FromContext(ctx).Error(err, "Cannot make room for waiting pods now; this is tried again")
		}
		pause := idlePause
		if busy && err == nil {
			pause = busyPause
		}
		timer.Reset(pause)
	}
}

// Step carries on the attempt of the cluster, or begins one. It returns whether there is one.
func (d *Defragmenter) Step(ctx context.Context) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var nodes v1alpha1.GPUNodeList
	if err := d.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list GPUNodes: %w", err)
	}
	for i := range nodes.Items {
		if a := nodes.Items[i].Status.Defragmentation; a != nil && a.Ended == nil {
			return d.carryOn(ctx, nodes.Items[i].Name)
		}
	}
	clear(d.reserved)
	return d.look(ctx, nodes.Items)
}
