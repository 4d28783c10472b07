package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const (
	// profilesInterval is how often the folders are read. The kubelet updates a ConfigMap within about a
	// minute.
	profilesInterval = 10 * time.Second
	// profilesRetry is the wait after an error.
	profilesRetry = 2 * time.Second
	// profilesTimeout limits one synchronization.
	profilesTimeout = time.Minute
)

// ChartProfiles keeps PartitionProfiles in sync with files: those of the chart and those in its
// values. They are not part of the Helm release, because Helm validates their kind before it creates
// the CustomResourceDefinition. It is a Runnable of a manager and runs on the leader.
//
// Such an object has a label and follows its file: edits are reverted, and it is deleted with the
// file. A profile without the label belongs to a person. It is not changed, and has precedence over
// a file of the same name.
type ChartProfiles struct {
	// Client reads and writes PartitionProfiles.
	Client client.Client
	// Dirs are the folders with the files. Earlier ones have precedence.
	Dirs []string
}

// NeedLeaderElection makes it run on the leader only.
func (p *ChartProfiles) NeedLeaderElection() bool { return true }

// Start synchronizes at once and then every few seconds, until ctx ends. Errors are retried; the same
// error is logged once.
func (p *ChartProfiles) Start(ctx context.Context) error {
	logged := ""
	for {
		text, wait := "", profilesInterval
		if err := p.Sync(ctx); err != nil {
			text, wait = err.Error(), profilesRetry
		}
		if text != logged && text != "" && ctx.Err() == nil {
			klog.FromContext(ctx).Error(errors.New(text), "Profiles of the chart are not all there; trying again")
		}
		logged = text
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Sync synchronizes the profiles once. An error with one does not block the others; the error names
// each. The object of an invalid file does not change.
func (p *ChartProfiles) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, profilesTimeout)
	defer cancel()
	files, err := readProfiles(p.Dirs)
	if err != nil {
		return fmt.Errorf("profiles of the chart: %w", err)
	}
	var list v1beta1.PartitionProfileList
	if err := p.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing PartitionProfiles: %w", err)
	}
	there := map[string]*v1beta1.PartitionProfile{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := files[name].err
		if err == nil {
			err = p.keep(ctx, files[name].profile, there[name])
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if files[name] == nil && ofChart(there[name]) {
			if err := p.remove(ctx, there[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func ofChart(p *v1beta1.PartitionProfile) bool {
	return p.Labels[names.LabelCreatedFrom] == names.CreatedFromChart
}

// keep creates or updates the object of a file. Objects of persons are not changed.
func (p *ChartProfiles) keep(ctx context.Context, want, there *v1beta1.PartitionProfile) error {
	want.Spec.Default()
	switch {
	case there == nil:
		made := &v1beta1.PartitionProfile{
			ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromChart}},
			Spec:       want.Spec,
		}
		if err := p.Client.Create(ctx, made); err != nil {
			return fmt.Errorf("creating PartitionProfile %s: %w", want.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Created a profile of the chart", "profile", want.Name)
	case ofChart(there) && !apiequality.Semantic.DeepEqual(there.Spec, want.Spec):
		changed := there.DeepCopy()
		changed.Spec = want.Spec
		if err := p.Client.Update(ctx, changed); err != nil {
			return fmt.Errorf("updating PartitionProfile %s: %w", want.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Updated a profile of the chart", "profile", want.Name)
	}
	return nil
}

// remove deletes an object unless it has changed: a person may have taken it over.
func (p *ChartProfiles) remove(ctx context.Context, there *v1beta1.PartitionProfile) error {
	err := p.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PartitionProfile %s: %w", there.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a profile that the chart no longer has", "profile", there.Name)
	return nil
}

// readProfiles reads the profiles in folders, by name. Earlier folders have precedence, also if their file is
// invalid; it is then returned with its error. A missing folder is empty.
func readProfiles(dirs []string) (map[string]*profileFile, error) {
	files := map[string]*profileFile{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			// The files of a mounted ConfigMap are in a folder with a leading dot.
			name, found := strings.CutSuffix(entry.Name(), ".yaml")
			if !found || strings.HasPrefix(name, ".") || files[name] != nil {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			f := &profileFile{}
			if f.text, f.err = os.ReadFile(path); f.err == nil {
				f.profile, f.err = parseProfile(path, name, f.text)
			}
			files[name] = f
		}
	}
	return files, nil
}

type profileFile struct {
	text    []byte
	profile *v1beta1.PartitionProfile
	err     error
}

func parseProfile(path, name string, text []byte) (*v1beta1.PartitionProfile, error) {
	if _, err := profile.Parse(path, text); err != nil {
		return nil, err
	}
	p := &v1beta1.PartitionProfile{}
	if err := strict.Decode(path, text, p); err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, fmt.Errorf("%s: metadata.name: is %s, it must be %s, as the file is named", path, p.Name, name)
	}
	return p, nil
}
