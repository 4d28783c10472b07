package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
)

// forcedGrace is how long a pod that is deleted by force may take at most. Its own grace
// period is the tenant's to choose, and could be years.
const forcedGrace = time.Minute

// Evict evicts pods, each once, or deletes them with force. Pods of DaemonSets are evicted,
// too: the taint keeps their replacements off the GPU, not off the node. Monitors are
// evicted last, because they show the drain. It returns the pods that
// leave, also with an error.
func (d *Drainer) Evict(ctx context.Context, holders []Holder, force bool) ([]*Pod, error) {
	var leave []*Pod
	var errs []error
	asked := map[types.UID]bool{}
	now := d.Clock.Now()
	tenants := slices.ContainsFunc(holders, func(h Holder) bool { return !h.Admin })
	for i := range holders {
		h := &holders[i]
		if tenants && h.Admin || !h.asked(now, force) || asked[h.Pod.UID] || !force && !d.refusals.due(h.Pod.UID, now) {
			continue
		}
		asked[h.Pod.UID] = true
		gone, err := d.evictOne(ctx, h.Pod, force)
		if gone {
			leave = append(leave, h.Pod)
			d.refusals.forget(h.Pod.UID)
		}
		errs = append(errs, err)
	}
	return leave, errors.Join(errs...)
}

// evictOne evicts one pod. A refusal is no error.
func (d *Drainer) evictOne(ctx context.Context, p *Pod, force bool) (bool, error) {
	err := d.ask(ctx, p, force, false)
	switch {
	case err == nil:
		outcome := names.EvictionEvicted
		if force {
			outcome = names.EvictionForced
		}
		d.Count(outcome)
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The pod is gone, or another one has its name.
		return false, nil
	case refused(err):
		d.Count(names.EvictionRefused)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		d.refusals.note(p.UID, refusalText(err), d.Clock.Now(), time.Duration(seconds)*time.Second)
		return false, nil
	}
	return false, fmt.Errorf("evict pod %s, which holds a GPU that changes: %w", p.NamespacedName, err)
}

// Ask evicts a pod, and only asks whether that is allowed in a dry run. It returns why the API server
// refuses; a pod that is gone is none.
func (d *Drainer) Ask(ctx context.Context, p *Pod, dry bool) (refusal string, err error) {
	refusal, err = refusalIn(d.ask(ctx, p, false, dry))
	if err != nil {
		return "", fmt.Errorf("evict pod %s: %w", p.NamespacedName, err)
	}
	return refusal, nil
}

// refusalIn returns why the API server refused an eviction. Without one, the pod leaves or is gone.
func refusalIn(err error) (string, error) {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case refused(err):
		return refusalText(err), nil
	}
	return "", err
}

// ask evicts a pod, or deletes it with force. A dry run only checks budgets and webhooks.
func (d *Drainer) ask(ctx context.Context, p *Pod, force, dry bool) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	if force {
		options := []client.DeleteOption{client.Preconditions{UID: &p.UID}}
		if seconds := int64(forcedGrace / time.Second); p.Grace > seconds {
			options = append(options, client.GracePeriodSeconds(seconds))
		}
		if dry {
			options = append(options, client.DryRunAll)
		}
		return d.Client.Delete(ctx, pod, options...)
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}
	var options []client.SubResourceCreateOption
	if dry {
		eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		options = append(options, client.DryRunAll)
	}
	return d.Client.SubResource("eviction").Create(ctx, pod, eviction, options...)
}

// refused reports whether an error means that the eviction was refused, not that the API server
// could not answer. Webhooks refuse with any code. The API server answers with an internal
// error if a pod has two budgets.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsUnauthorized(err) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout || apierrors.IsInternalError(err)
}

// refusalText returns why the API server refused an eviction. Its details name the budget: "The
// disruption budget web needs 2 healthy pods and has 2 currently".
func refusalText(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				if cause.Type == policyv1.DisruptionBudgetCause {
					return cause.Message
				}
			}
		}
	}
	return err.Error()
}
