package claimtemplates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/controller/nslabel"
)

const (
	// mostTemplates is how many templates a namespace can have: who may create pods must not
	// fill the API server with objects of another kind.
	mostTemplates = 500
	// keepUnused is how long a template stays that no pod names. Jobs come back.
	keepUnused = time.Hour
)

// Reconciler keeps the templates of a namespace.
type Reconciler struct {
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Projects are the values of the namespace label that count.
	Projects []string

	label nslabel.Label
	// mu protects what follows.
	mu sync.Mutex
	// unused says since when no pod has named a template.
	unused map[types.NamespacedName]time.Time
	// told are the pods that were told of something, by namespace.
	told map[string]map[types.UID]bool
}

// Reconcile brings the templates of the namespace in line with its pods.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := request.Name
	var namespace corev1.Namespace
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the pods of namespace %s: %w", name, err)
	}
	r.forgetPods(name, pods.Items)
	project := namespace.Labels[names.LabelTranslate]
	r.label.Check(r.Events, &namespace, names.LabelTranslate, "by the chart's values below translate, ", r.Projects...)
	if slices.Contains(r.Projects, names.TranslateKAI) {
		r.warnIgnored(name, project, pods.Items)
	}
	if namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	named := namedBy(pods.Items)
	there, err := templates(ctx, r.Client, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !slices.Contains(r.Projects, project) {
		return r.removeUnused(ctx, name, there, named, 0)
	}
	if missing(there, named) > 0 {
		// The cache may lack templates that were just created, and they count.
		if there, err = templates(ctx, r.Reader, name); err != nil {
			return reconcile.Result{}, err
		}
	}
	result, err := r.removeUnused(ctx, name, there, named, len(there)+missing(there, named)-mostTemplates)
	if err != nil {
		return result, err
	}
	return result, r.create(ctx, name, there, named)
}

// templates returns those of the controller in a namespace.
func templates(ctx context.Context, reader client.Reader, namespace string) (map[string]*resourceapi.ResourceClaimTemplate, error) {
	var list resourceapi.ResourceClaimTemplateList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{names.LabelCreatedFrom: names.CreatedFromAmount}); err != nil {
		return nil, fmt.Errorf("list the ResourceClaimTemplates of namespace %s: %w", namespace, err)
	}
	there := map[string]*resourceapi.ResourceClaimTemplate{}
	for i := range list.Items {
		// Others can set the label, too.
		if _, err := claimtemplate.Parse(list.Items[i].Name); err == nil {
			there[list.Items[i].Name] = &list.Items[i]
		}
	}
	return there, nil
}

// missing returns how many templates are named and not there.
func missing(there map[string]*resourceapi.ResourceClaimTemplate, named map[string][]*corev1.Pod) (n int) {
	for name := range named {
		if there[name] == nil {
			n++
		}
	}
	return n
}

// create creates the templates that pods name, as many as may be.
func (r *Reconciler) create(ctx context.Context, namespace string, there map[string]*resourceapi.ResourceClaimTemplate, named map[string][]*corev1.Pod) error {
	var errs []error
	for _, template := range slices.Sorted(maps.Keys(named)) {
		if there[template] != nil {
			continue
		}
		if len(there) >= mostTemplates {
			for _, pod := range named[template] {
				r.warn(pod, names.EventTooManyAmounts,
					fmt.Sprintf("Pods of namespace %s ask for more than %d different amounts of GPUs; this pod waits until others end", namespace, mostTemplates))
			}
			continue
		}
		made, err := r.createOne(ctx, namespace, template)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if made != nil {
			there[template] = made
		}
	}
	return errors.Join(errs...)
}

// createOne creates a template. It returns nil if there is one that somebody else made.
func (r *Reconciler) createOne(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
	asked, err := claimtemplate.Parse(name)
	if err != nil {
		return nil, err
	}
	made := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: asked.Spec()},
	}
	err = r.Client.Create(ctx, made)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create ResourceClaimTemplate %s in namespace %s: %w", name, namespace, err)
	}
	klog.FromContext(ctx).V(2).Info("Created a ResourceClaimTemplate", "namespace", namespace, "name", name)
	return made, nil
}

// removeUnused deletes templates that no pod has named for a while, and as many more as do
// not fit, the longest unused first. A template that a pod has used once is not needed by that
// pod any more, but it is by the next of the same workload. One that finalizers keep, which
// tenants can set, stays in there, and counts.
func (r *Reconciler) removeUnused(ctx context.Context, namespace string, there map[string]*resourceapi.ResourceClaimTemplate,
	named map[string][]*corev1.Pod, tooMany int,
) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	for key := range r.unused {
		if key.Namespace == namespace && (there[key.Name] == nil || named[key.Name] != nil) {
			delete(r.unused, key)
		}
	}
	var idle []types.NamespacedName
	for name := range there {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if named[name] != nil || there[name].DeletionTimestamp != nil {
			continue
		}
		if _, known := r.unused[key]; !known {
			if r.unused == nil {
				r.unused = map[types.NamespacedName]time.Time{}
			}
			r.unused[key] = now
		}
		idle = append(idle, key)
	}
	slices.SortFunc(idle, func(a, b types.NamespacedName) int {
		return cmp.Or(r.unused[a].Compare(r.unused[b]), strings.Compare(a.Name, b.Name))
	})
	var result reconcile.Result
	for i, key := range idle {
		if left := keepUnused - now.Sub(r.unused[key]); left > 0 && i >= tooMany {
			result.RequeueAfter = left
			break
		}
		old := there[key.Name]
		if err := r.Client.Delete(ctx, old, client.Preconditions{UID: &old.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return result, fmt.Errorf("delete ResourceClaimTemplate %s of namespace %s, which no pod names: %w", key.Name, namespace, err)
		}
		if len(old.Finalizers) == 0 {
			delete(there, key.Name)
		}
		delete(r.unused, key)
	}
	return result, nil
}

// namedBy returns the names of templates that could be ours, with the pods that name them.
func namedBy(pods []corev1.Pod) map[string][]*corev1.Pod {
	named := map[string][]*corev1.Pod{}
	for i := range pods {
		if ended(&pods[i]) {
			continue
		}
		for _, c := range pods[i].Spec.ResourceClaims {
			if c.ResourceClaimTemplateName == nil {
				continue
			}
			if _, err := claimtemplate.Parse(*c.ResourceClaimTemplateName); err == nil {
				named[*c.ResourceClaimTemplateName] = append(named[*c.ResourceClaimTemplateName], &pods[i])
			}
		}
	}
	return named
}

// ended reports whether a pod needs nothing any more.
func ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (r *Reconciler) forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.unused, func(key types.NamespacedName, _ time.Time) bool { return key.Namespace == namespace })
	delete(r.told, namespace)
	r.label.Forget(namespace)
}
