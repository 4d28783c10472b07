package node

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
)

const (
	// retireTimeout limits how long withdrawing the node may take. With callTimeout and
	// endDaemonsTimeout, it is shorter than the pod's grace period.
	retireTimeout = time.Minute
	// retireInterval is the time between two attempts.
	retireInterval = time.Second
	// askTimeout is how long the API server may take to say whether the DaemonSet is being deleted.
	askTimeout = 10 * time.Second
)

// retire withdraws the node when the plugin ends, if Tranche is being uninstalled: the partitions
// that profiles created, the labels, and the ResourceSlices. It reports whether it has done so. Nobody
// calls the plugin any more. What claims hold stays, and so do their records: the next installation
// releases them. p is nil if the plugin served no GPUs.
func (c *Config) retire(ctx context.Context, client kubernetes.Interface, p *plugin) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retireTimeout)
	defer cancel()
	if !c.isUninstalled(ctx, client) {
		return false
	}
	if p != nil {
		p.events.LastNote(ctx, names.EventUninstalling, "Tranche is being uninstalled; the GPUs of this node are withdrawn")
		p.claims.reconcile(ctx)
	}
	var failed error
	_ = wait.PollUntilContextCancel(ctx, retireInterval, true, func(ctx context.Context) (bool, error) { // failed says more
		if p != nil {
			failed = p.withdraw(ctx)
		}
		if p == nil || failed == nil {
			failed = publisher.Withdraw(ctx, client, c.NodeName)
		}
		return failed == nil, nil
	})
	if failed != nil {
		klog.FromContext(ctx).Error(failed, "Cannot withdraw the GPUs of the node, so its ResourceSlices and files are kept")
	}
	return failed == nil
}

// isUninstalled reports whether Tranche is being uninstalled: the DaemonSet of the plugin is being
// deleted in the foreground, which cannot be undone. One that is gone is no sign: somebody may be
// replacing it.
func (c *Config) isUninstalled(ctx context.Context, client kubernetes.Interface) bool {
	namespace, name, ok := strings.Cut(c.DaemonSet, "/")
	if !ok {
		return false // not installed by the chart
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Cannot find out whether Tranche is being uninstalled", "daemonSet", c.DaemonSet)
		}
		return false
	}
	return set.DeletionTimestamp != nil
}

// withdraw removes the partitions, resources and labels of the node. Where a process uses a partition of a
// profile, it fails.
func (p *plugin) withdraw(ctx context.Context) error {
	if err := p.clearProfile(ctx); err != nil {
		return err
	}
	if p.GPUResources {
		if err := p.node.WriteResources(ctx, p.client, nil); err != nil {
			return err
		}
	}
	if p.labels == nil {
		return nil
	}
	return p.labels.Update(ctx, nil)
}

// clearProfile removes the partitions of the node's profile, because no record of them remains.
func (p *plugin) clearProfile(ctx context.Context) error {
	p.monitor.looking.Lock()
	defer p.monitor.looking.Unlock()
	err := p.profile.Clear(ctx)
	if held := p.claims.holdingClaims(); err != nil && len(held) > 0 && p.profile.Unread() == nil {
		klog.FromContext(ctx).Info("Partitions of the profile stay, because claims hold GPUs", "claims", len(held), "first", held[0].String(), "err", err)
		return nil
	}
	return err
}
