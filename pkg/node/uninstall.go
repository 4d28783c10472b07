package node

import (
	"context"
	"errors"
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

	"github.com/tranche-dev/tranche/api/names"
)

// orderSyncTimeout is how long the start of the plugin waits for the order. Without it, the
// plugin continues: orders are rare.
const orderSyncTimeout = 5 * time.Second

// errUninstalling is the answer to the kubelet while Tranche is being uninstalled.
var errUninstalling = errors.New("Tranche is being uninstalled, so no claims are prepared; if the uninstallation fails, this is retried") //nolint:revive,staticcheck // a name

// uninstallation knows whether Tranche is being uninstalled.
type uninstallation struct {
	// mu protects the fields below.
	mu    sync.Mutex
	order names.UninstallRequest
	// changed is when the plugin last noticed a change of the order.
	changed time.Time
}

// take updates the order. A deleted ConfigMap changes nothing: Helm deletes it with the
// installation, or the order expires.
func (u *uninstallation) take(c *corev1.ConfigMap, now time.Time) {
	if c == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if order := names.ReadUninstallRequest(c.Data); order != u.order {
		u.order, u.changed = order, now
	}
}

// current returns the order, or the zero value if there is none or it has expired.
func (u *uninstallation) current(now time.Time) names.UninstallRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.order.Active || now.Sub(u.changed) > names.UninstallRequestExpiry {
		return names.UninstallRequest{}
	}
	return u.order
}

func (u *uninstallation) active() bool { return u.current(time.Now()).Active }

// watch watches the ConfigMap of the order (namespace/name) until ctx ends. Errors are only
// logged: the plugin works without the order.
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
		klog.FromContext(ctx).Error(err, "Cannot watch the order to uninstall Tranche")
		return
	}
	factory.StartWithContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, orderSyncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		klog.FromContext(ctx).Info("Cannot read yet whether Tranche is being uninstalled", "configMap", order)
	}
}

// followUninstallation carries out the order until ctx ends.
func (p *plugin) followUninstallation(ctx context.Context) {
	tick := time.NewTicker(uninstallInterval)
	defer tick.Stop()
	var told bool
	for {
		order := p.uninstallation.current(time.Now())
		switch {
		case order.Active:
			if !told {
				p.events.Note(ctx, names.EventUninstalling, "Tranche is being uninstalled; the GPUs of this node are withdrawn")
				p.reconcile(ctx)
			}
			p.retire(ctx, order.Force)
		case told:
			p.events.Note(ctx, names.EventUninstallCancelled, "The uninstallation of Tranche was cancelled; the GPUs of this node are published again")
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

// uninstallInterval is how often the order is checked.
const uninstallInterval = time.Second

// retire removes the partitions that profiles created, and withdraws the GPUs, once no claim
// holds any. `helm uninstall` waits for that.
func (p *plugin) retire(ctx context.Context, force bool) {
	if p.publisher.IsWithdrawn() && !p.followsProfile() {
		return
	}
	if held := p.holdingClaims(); len(held) > 0 && !force {
		// The kubelet has not released them yet, or a process uses them.
		klog.FromContext(ctx).Info("Cannot withdraw the GPUs of the node yet, claims hold some", "claims", len(held), "first", held[0].String())
		p.reconcile(ctx)
		return
	}
	if err := p.clearProfile(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the partitions of the profile yet, which is retried")
		if !force {
			return
		}
	}
	if p.labels != nil {
		if err := p.labels.Remove(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the GPU labels of the node yet, which is retried")
			return
		}
	}
	p.publisher.SetWithdrawn(ctx, true)
}

// followsProfile tells whether the GPUs may have partitions of a profile. That can change while
// the GPUs are withdrawn, if the uninstallation was cancelled for a moment.
func (p *plugin) followsProfile() bool {
	return p.profile != nil && (p.profile.Applied().Hash != "" || p.profile.Unfinished() != nil)
}

// clearProfile removes the partitions of the node's profile, because no record of them remains.
// If the uninstallation is cancelled, the controller applies the profile again.
func (p *plugin) clearProfile(ctx context.Context) error {
	if p.profile == nil || !p.publisher.IsMine() {
		return nil // no GPUs, or another plugin is in charge
	}
	p.looking.Lock()
	defer p.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, clearBudget)
	defer cancel()
	return p.profile.Clear(ctx)
}

// clearBudget limits how long removing the partitions of all GPUs may take. `helm uninstall`
// waits for two minutes.
const clearBudget = 90 * time.Second

// refuse refuses new claims during the uninstallation. Claims that have devices are prepared again,
// because their containers may have to be restarted.
func (u *uninstallation) refuse() error {
	if !u.active() {
		return nil
	}
	return errUninstalling
}
