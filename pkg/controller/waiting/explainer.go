package waiting

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/pkg/allocation"
)

// Options say when events are written, and how much that may cost.
type Options struct {
	// After is how long a pod waits before it gets an event. 0: none does.
	After time.Duration
	// PerSecond is how many calls to the API server are made each second at most.
	PerSecond float64
	// Clock is the clock, nil: that of the machine.
	Clock    clock.PassiveClock
	Registry prometheus.Registerer
}

const (
	// longestInterval is the time between two rounds. It is shorter if pods wait for a short time only.
	longestInterval = 5 * time.Second
	// perRound is how many pods are read and how many events are written in a round at most, and judgingPerRound how
	// long nodes are judged, so that no pod delays the others for long.
	perRound        = 100
	judgingPerRound = 10 * time.Second
	callTimeout     = 30 * time.Second
	// maxSelectors is how many compiled selectors are kept.
	maxSelectors = 1000
)

// limits bound what tenants can have the controller remember and judge.
type limits struct{ demands, perNamespace int }

// Explainer writes events on pods that wait. It belongs to the goroutine that runs it, except changes.
type Explainer struct {
	// Client reads from the cache of the manager and writes, Reader reads from the API server, and Pods from a
	// cache of the pods that wait for a node.
	Client       client.Client
	Reader, Pods client.Reader
	Clock        clock.PassiveClock
	After        time.Duration
	// HasRules: the API server serves DeviceTaintRules.
	HasRules bool

	limiter  *rate.Limiter
	limits   limits
	budget   budget
	metrics  *metrics
	compiled *cel.Cache
	changes  changes

	// pods are those that wait, demands what they ask for, nodes those with GPUs.
	pods    map[types.NamespacedName]*pod
	demands map[string]*demand
	nodes   map[string]*node
	// retryAt is when events are written again in namespaces where that failed.
	retryAt map[string]time.Time
}

// New makes an Explainer.
func New(c client.Client, reader, pods client.Reader, o Options) *Explainer {
	e := &Explainer{
		Client: c, Reader: reader, Pods: pods, Clock: o.Clock, After: o.After, HasRules: true,
		limiter: rate.NewLimiter(rate.Limit(o.PerSecond), max(1, int(o.PerSecond))),
		limits:  limits{demands: 200, perNamespace: 20}, budget: defaultBudget,
		metrics: newMetrics(o.Registry), compiled: allocation.NewCache(maxSelectors),
		pods: map[types.NamespacedName]*pod{}, demands: map[string]*demand{}, nodes: map[string]*node{}, retryAt: map[string]time.Time{},
	}
	if e.Clock == nil {
		e.Clock = clock.RealClock{}
	}
	return e
}

// Run runs rounds until the context ends.
func (e *Explainer) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, e.round, min(max(e.After/10, 100*time.Millisecond), longestInterval))
	return nil
}

// round brings all answers up to date, as far as there is time, and writes the events that are due.
// What fails is tried again in the next round.
func (e *Explainer) round(ctx context.Context) {
	changed := e.changes.take()
	for _, step := range []struct {
		what string
		do   func(context.Context, changeSet) error
	}{
		{"list nodes with GPUs", e.updateNodes}, {"read pods that wait", e.updatePods}, {"judge nodes for pods that wait", e.judge}, {"write events on pods that wait", e.writeEvents},
	} {
		if err := step.do(ctx, changed); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Explaining pods that wait failed; trying again", "step", step.what)
		}
	}
	e.metrics.set(e.numbers())
}

// call waits until another call to the API server may be made. The call must end by the returned context.
func (e *Explainer) call(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := e.limiter.Wait(ctx); err != nil {
		return ctx, func() {}, err
	}
	e.metrics.requests.Inc()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	return ctx, cancel, nil
}

// inTurns picks up to perRound pods: one of each namespace, then another one of each.
func inTurns(pods []types.NamespacedName) (out []types.NamespacedName) {
	of := map[string][]types.NamespacedName{}
	for _, p := range pods {
		of[p.Namespace] = append(of[p.Namespace], p)
	}
	for i := 0; len(of) > 0; i++ {
		for namespace, all := range of {
			if i == len(all) {
				delete(of, namespace)
				continue
			}
			if out = append(out, all[i]); len(out) == perRound {
				return out
			}
		}
	}
	return out
}
