package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// orderSyncTimeout is how long the start waits to learn whether there is an
// order. Without the answer it goes on: an order is rare.
const orderSyncTimeout = 5 * time.Second

// errUninstalling is the answer to the kubelet while Tranche is uninstalled.
var errUninstalling = errors.New("Tranche is being uninstalled and gives out no GPUs; if that fails, this is tried again by itself") //nolint:revive,staticcheck // a name

// uninstallation knows whether Tranche is being uninstalled.
type uninstallation struct {
	// mu protects what follows.
	mu    sync.Mutex
	order uninstall.Order
	// changed is when the order was last seen to change, by our own clock.
	changed time.Time
}

// take takes in what the order says now. That it is gone says nothing: it goes
// with the installation, whose end is then near. If not, it expires.
func (u *uninstallation) take(c *corev1.ConfigMap, now time.Time) {
	if c == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if order := uninstall.ReadOrder(c); order != u.order {
		u.order, u.changed = order, now
	}
}

// current is the order that is in force, the zero value if there is none.
func (u *uninstallation) current(now time.Time) uninstall.Order {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.order.Active || now.Sub(u.changed) > uninstall.Expiry {
		return uninstall.Order{}
	}
	return u.order
}

func (u *uninstallation) active() bool { return u.current(time.Now()).Active }

// watch follows the order that is named namespace/name until ctx
// ends. It fails softly: a plugin that may not read the order works all the same.
func (u *uninstallation) watch(ctx context.Context, client kubernetes.Interface, order string) {
	namespace, name, ok := strings.Cut(order, "/")
	if !ok {
		return // not installed by the chart
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	take := func(object any) {
		if c, ok := object.(*corev1.ConfigMap); ok && c.Name == name {
			u.take(c, time.Now())
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, now any) { take(now) }})
	if err != nil {
		klog.FromContext(ctx).Error(err, "It is not watched whether Tranche is uninstalled")
		return
	}
	factory.StartWithContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, orderSyncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		klog.FromContext(ctx).Info("It is not known yet whether Tranche is being uninstalled", "configMap", order)
	}
}

// followUninstallation does what the order says until ctx ends.
func (p *plugin) followUninstallation(ctx context.Context) {
	tick := time.NewTicker(uninstallInterval)
	defer tick.Stop()
	var told bool
	for {
		order := p.uninstallation.current(time.Now())
		switch {
		case order.Active:
			if !told {
				p.events.Note(ctx, v1alpha1.EventUninstalling, "Tranche is being uninstalled; the GPUs of this node are withdrawn")
				p.reconcile(ctx)
			}
			p.retire(ctx, order.Force)
		case told:
			p.events.Note(ctx, v1alpha1.EventUninstallCancelled, "Tranche is not uninstalled after all; the GPUs of this node are given out again")
			if p.labels != nil {
				p.labels.Resume()
			}
			p.publisher.SetWithdrawn(ctx, false)
		}
		told = order.Active
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// uninstallInterval is the time between two looks at the order.
const uninstallInterval = time.Second

// retire removes what profiles have made of the node's GPUs, and withdraws them, once no
// claim holds any. Who uninstalls waits for that, and so knows that nothing will be left.
func (p *plugin) retire(ctx context.Context, force bool) {
	if p.publisher.IsWithdrawn() && !p.followsProfile() {
		return
	}
	if held := p.holdingClaims(); len(held) > 0 && !force {
		// What the kubelet has not released by now, or a process keeps in use.
		klog.FromContext(ctx).Info("Cannot withdraw the GPUs of the node yet, claims hold some", "claims", len(held), "first", held[0].String())
		p.reconcile(ctx)
		return
	}
	if err := p.clearProfile(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Partitions that a profile has made stay behind for now")
		if !force {
			return
		}
	}
	if p.labels != nil {
		if err := p.labels.Remove(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The node's labels stay behind for now")
			return
		}
	}
	p.publisher.SetWithdrawn(ctx, true)
}

// followsProfile tells whether something may be on the GPUs that a profile has made: it
// is so again if uninstalling was given up for a moment.
func (p *plugin) followsProfile() bool {
	return p.profile != nil && (p.profile.Applied().Hash != "" || p.profile.Unfinished() != nil)
}

// clearProfile removes the partitions that the node's profile has made: nobody knows
// afterwards that they are ours. If Tranche is not uninstalled after all, the controller
// finds that the node does not follow its profile.
func (p *plugin) clearProfile(ctx context.Context) error {
	if p.profile == nil || !p.publisher.IsMine() {
		return nil // no GPUs, or another plugin changes them
	}
	p.looking.Lock()
	defer p.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, clearBudget)
	defer cancel()
	return p.profile.Clear(ctx)
}

// clearBudget is how long the partitions of all GPUs may take to be removed. Who
// uninstalls waits for two minutes.
const clearBudget = 90 * time.Second

// refuse says why a claim that holds nothing yet is not prepared. One that does
// is prepared again: its containers may have to be started anew.
func (d *driver) refuse(known bool) error {
	if d.uninstallation == nil || known || !d.uninstallation.active() {
		return nil
	}
	return errUninstalling
}

// waitForCalls lets no call of the kubelet begin any more, and waits until those
// that have begun have ended: the end of the server would cut them off, and the
// kubelet takes its time to try again.
func (d *driver) waitForCalls(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		d.calls.Lock()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(callPatience):
		klog.FromContext(ctx).Info("A call of the kubelet does not end; the plugin ends all the same", "waited", fmt.Sprint(callPatience))
	}
}

// callPatience is longer than a call may take, and shorter than the pod's time
// to end.
const callPatience = 45 * time.Second
