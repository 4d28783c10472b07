package switchover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ErrStartAnew is what the manager ends with when the controller has to be started anew.
// That is no failure: it goes on where it was.
var ErrStartAnew = errors.New("the API server has another set of kinds than it had when the controller started")

const (
	// rulesInterval is the time between two looks at whether the API server has
	// DeviceTaintRules. An upgrade takes longer, and a look costs one small answer that
	// the server has in memory.
	rulesInterval = time.Minute
	// rulesSure is how many looks in a row must have the same new answer: during an
	// upgrade, servers of two versions answer under one address.
	rulesSure = 3
)

// resourceLister is what discovery says of one version of a group.
type resourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

var _ resourceLister = (discovery.ServerResourcesInterfaceWithContext)(nil)

// hasRules tells whether the API server has DeviceTaintRules.
func hasRules(ctx context.Context, d resourceLister) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, ruleKind.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "ask the API server whether it has DeviceTaintRules")
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == ruleKind.Kind }), nil
}

// HasDeviceTaintRules asks the API server whether it has DeviceTaintRules.
func HasDeviceTaintRules(ctx context.Context, api *rest.Config) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(api)
	if err != nil {
		return false, fmt.Errorf("prepare to ask which kinds the API server has: %w", err)
	}
	return hasRules(ctx, d)
}

// watchRules has it looked for whether that changes.
func watchRules(mgr manager.Manager, had bool, every time.Duration) error {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("prepare to ask which kinds the API server has: %w", err)
	}
	return wrap(mgr.Add(&rulesWatch{discovery: d, had: had, every: cmp.Or(every, rulesInterval)}), "look for DeviceTaintRules")
}

// rulesWatch looks whether DeviceTaintRules have come or gone. What follows from that
// (what is watched, who is tainted) is settled when the controller starts, so it ends to
// be started anew: it can be ended at any point.
type rulesWatch struct {
	discovery resourceLister
	// had is what was found at the start.
	had   bool
	every time.Duration
}

var _ manager.LeaderElectionRunnable = (*rulesWatch)(nil)

// NeedLeaderElection implements manager.LeaderElectionRunnable: who waits to lead has
// watches, too.
func (*rulesWatch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w *rulesWatch) Start(ctx context.Context) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for different := 0; different < rulesSure; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		has, err := hasRules(ctx, w.discovery)
		switch {
		case err != nil: // It is away, or does not know at the moment.
			klog.FromContext(ctx).V(4).Info("It is not known whether there are DeviceTaintRules", "err", err)
		case has == w.had:
			different = 0
		default:
			different++
		}
	}
	klog.FromContext(ctx).Info("Whether the API server has DeviceTaintRules has changed, so the controller starts anew", "before", w.had, "now", !w.had)
	return ErrStartAnew
}
