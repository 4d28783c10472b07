package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// firstEvictionRetry and lastEvictionRetry are how long a pod is left alone after
	// its eviction was refused: the wait doubles from one to the other.
	firstEvictionRetry = 2 * time.Second
	lastEvictionRetry  = 30 * time.Second
	// forcedGrace is how long a pod that is deleted by force may take at most. Its own
	// grace period is the tenant's to choose, and could be years.
	forcedGrace = time.Minute
)

// evictions remembers what was refused, so that no pod is asked all the time. What it
// forgets with the controller is asked once more.
type evictions struct {
	// mu guards refusals.
	mu       sync.Mutex
	refusals map[types.UID]refusal
}

type refusal struct {
	why  string
	next time.Time
	wait time.Duration
}

// refused is why a pod was not evicted, empty: it was not refused.
func (e *evictions) refused(uid types.UID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusals[uid].why
}

// due tells whether a pod may be asked again.
func (e *evictions) due(uid types.UID, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !now.Before(e.refusals[uid].next)
}

// note remembers a refusal. The server may have said how long to wait.
func (e *evictions) note(uid types.UID, why string, now time.Time, asked time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refusals == nil {
		e.refusals = map[types.UID]refusal{}
	}
	r := e.refusals[uid]
	r.why = why
	r.wait = min(max(firstEvictionRetry, r.wait*2), lastEvictionRetry)
	r.next = now.Add(min(max(r.wait, asked), lastEvictionRetry))
	e.refusals[uid] = r
	for other, r := range e.refusals {
		if now.Sub(r.next) > time.Hour {
			delete(e.refusals, other)
		}
	}
}

func (e *evictions) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.refusals, uid)
}

// evict asks pods to leave, each once. Pods of DaemonSets are asked, too: the taint
// keeps their successors off the GPU, not off the node. Who has admin access is asked
// when all others have left: monitoring shows the drain. It returns how many said yes.
func (r *Reconciler) evict(ctx context.Context, profile string, holders []Holder, force bool) (int32, error) {
	var left int32
	var errs []error
	asked := map[types.UID]bool{}
	now := r.Clock.Now()
	tenants := slices.ContainsFunc(holders, func(h Holder) bool { return !h.Admin })
	for i := range holders {
		h := &holders[i]
		if tenants && h.Admin || !h.asked(now, force) || asked[h.Pod.UID] || !force && !r.evictions.due(h.Pod.UID, now) {
			continue
		}
		asked[h.Pod.UID] = true
		gone, err := r.evictOne(ctx, h.Pod, force)
		if gone {
			left++
			r.evictions.forget(h.Pod.UID)
			r.tellPod(h.Pod, profile, force)
		}
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}

// evictOne asks one pod. A refusal is no error.
func (r *Reconciler) evictOne(ctx context.Context, p *Pod, force bool) (bool, error) {
	err := r.ask(ctx, p, force, false)
	switch {
	case err == nil:
		outcome := "evicted"
		if force {
			outcome = "forced"
		}
		r.metrics.evictions.WithLabelValues(outcome).Inc()
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, or another of that name is there.
		return false, nil
	case refused(err):
		r.metrics.evictions.WithLabelValues("refused").Inc()
		seconds, _ := apierrors.SuggestsClientDelay(err)
		r.evictions.note(p.UID, refusalText(err), r.Clock.Now(), time.Duration(seconds)*time.Second)
		return false, nil
	}
	return false, fmt.Errorf("evict pod %s, which holds a GPU that changes: %w", p.NamespacedName, err)
}

// ask evicts a pod, or with force deletes it. A dry run does everything but that: budgets
// and webhooks are asked, and nothing changes.
func (r *Reconciler) ask(ctx context.Context, p *Pod, force, dry bool) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	if force {
		options := []client.DeleteOption{client.Preconditions{UID: &p.UID}}
		if seconds := int64(forcedGrace / time.Second); p.Grace > seconds {
			options = append(options, client.GracePeriodSeconds(seconds))
		}
		if dry {
			options = append(options, client.DryRunAll)
		}
		return r.Client.Delete(ctx, pod, options...)
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
	return r.Client.SubResource("eviction").Create(ctx, pod, eviction, options...)
}

// refused tells whether an error is the server's answer to an eviction, not that it could
// not answer. Somebody's webhook may refuse with any code; two budgets for one pod are an
// internal error of the server.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsUnauthorized(err) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout || apierrors.IsInternalError(err)
}

// refusalText is what the API server says against an eviction. For a budget, it names
// it in the details: "The disruption budget web needs 2 healthy pods and has 2
// currently".
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
