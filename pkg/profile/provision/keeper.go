package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

const (
	// interval is how often the folders are read. The kubelet updates a ConfigMap within about a
	// minute.
	interval = 10 * time.Second
	// again is the wait after an error.
	again = 2 * time.Second
	// patience limits one synchronization.
	patience = time.Minute
)

// Keeper keeps PartitionProfiles in sync with files. It is a Runnable of a manager and runs on the
// leader.
type Keeper struct {
	// Client reads and writes PartitionProfiles.
	Client client.Client
	// Dirs are the folders with the files. Earlier ones have precedence.
	Dirs []string
}

// NeedLeaderElection makes it run on the leader only.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start synchronizes at once and then every few seconds, until ctx ends. Errors are retried; the same
// error is logged once.
func (k *Keeper) Start(ctx context.Context) error {
	told := ""
	for {
		text, wait := "", interval
		if err := k.Sync(ctx); err != nil {
			text, wait = err.Error(), again
		}
		if text != told && text != "" && ctx.Err() == nil {
			klog.FromContext(ctx).Error(errors.New(text), "Profiles of the chart are not all there; trying again")
		}
		told = text
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Sync synchronizes the profiles once. An error with one does not block the others; the error names
// each. The object of an invalid file does not change.
func (k *Keeper) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	files, err := read(k.Dirs)
	if err != nil {
		return fmt.Errorf("profiles of the chart: %w", err)
	}
	var list v1alpha1.PartitionProfileList
	if err := k.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing PartitionProfiles: %w", err)
	}
	there := map[string]*v1alpha1.PartitionProfile{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := files[name].err
		if err == nil {
			err = k.keep(ctx, files[name].profile, there[name])
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if files[name] == nil && ours(there[name]) {
			if err := k.remove(ctx, there[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func ours(p *v1alpha1.PartitionProfile) bool { return p.Labels[names.LabelFromChart] == "true" }

// keep creates or updates the object of a file. Objects of persons are not changed.
func (k *Keeper) keep(ctx context.Context, want, there *v1alpha1.PartitionProfile) error {
	switch {
	case there == nil:
		made := &v1alpha1.PartitionProfile{
			ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: map[string]string{names.LabelFromChart: "true"}},
			Spec:       want.Spec,
		}
		if err := k.Client.Create(ctx, made); err != nil {
			return fmt.Errorf("creating PartitionProfile %s: %w", want.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Created a profile of the chart", "profile", want.Name)
	case ours(there) && !apiequality.Semantic.DeepEqual(there.Spec, want.Spec):
		changed := there.DeepCopy()
		changed.Spec = want.Spec
		if err := k.Client.Update(ctx, changed); err != nil {
			return fmt.Errorf("updating PartitionProfile %s: %w", want.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Updated a profile of the chart", "profile", want.Name)
	}
	return nil
}

// remove deletes an object unless it has changed: a person may have taken it over.
func (k *Keeper) remove(ctx context.Context, p *v1alpha1.PartitionProfile) error {
	err := k.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PartitionProfile %s: %w", p.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a profile that the chart no longer has", "profile", p.Name)
	return nil
}
