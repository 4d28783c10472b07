package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/text"
)

// formatsOf are the formats of the ConfigMaps of projects. Kaiwo's labels name
// profiles of AMD's device config manager.
var formatsOf = map[v1alpha1.Source]formats.Format{
	v1alpha1.FromMIGParted:           formats.MIGParted,
	v1alpha1.FromDeviceConfigManager: formats.DeviceConfigManager,
	v1alpha1.FromKaiwo:               formats.DeviceConfigManager,
}

// configMaps has the ConfigMaps with the configurations of other projects. No other ConfigMap
// is read.
type configMaps struct {
	live  client.Reader
	named []wantedConfigMap
	// caches have one ConfigMap each. Without one, the API server is asked.
	caches map[types.NamespacedName]configMapCache

	// mu guards what follows.
	mu     sync.Mutex
	parsed map[wantedConfigMap]configurations
	// told and noted are the last problem and the last notes that were reported of each.
	told, noted map[wantedConfigMap]string
}

type wantedConfigMap struct {
	state.ConfigMap
	source v1alpha1.Source
}

type configMapCache struct {
	client.Reader
	synced func() bool
}

// configurations are those of one version of a ConfigMap.
type configurations struct {
	uid      types.UID
	version  string
	profiles []formats.Profile
	// problem says why there are none.
	problem string
	// notes say which parts have no counterpart.
	notes []string
}

func newConfigMaps(live client.Reader, tools state.Tools) *configMaps {
	m := &configMaps{
		live: live, caches: map[types.NamespacedName]configMapCache{},
		parsed: map[wantedConfigMap]configurations{}, told: map[wantedConfigMap]string{}, noted: map[wantedConfigMap]string{},
	}
	for _, source := range slices.Sorted(maps.Keys(tools)) {
		if c := tools[source]; c != (state.ConfigMap{}) {
			m.named = append(m.named, wantedConfigMap{c, source})
		}
	}
	return m
}

// watch caches the ConfigMaps. The channel gets an event when one changes, and one at the
// beginning. A ConfigMap that cannot be read does not delay the start of the controller.
func (m *configMaps) watch(ctx context.Context, mgr manager.Manager) (<-chan event.GenericEvent, error) {
	// One place is enough: an event that waits covers everything before it.
	changed := make(chan event.GenericEvent, 1)
	wake := func(any) {
		select {
		case changed <- event.GenericEvent{Object: &corev1.ConfigMap{}}:
		default:
		}
	}
	if len(m.named) > 0 {
		wake(nil)
	}
	for _, c := range m.named {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		if _, known := m.caches[key]; known {
			continue
		}
		one, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultTransform: cache.TransformStripManagedFields(),
			DefaultNamespaces: map[string]cache.Config{
				c.Namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name)},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch ConfigMap %s: %w", key, err)
		}
		informer, err := one.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch ConfigMap %s: %w", key, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }, DeleteFunc: wake})
		if err != nil {
			return nil, fmt.Errorf("watch ConfigMap %s: %w", key, err)
		}
		if err := mgr.Add(alsoWithoutLeading{one}); err != nil {
			return nil, fmt.Errorf("watch ConfigMap %s: %w", key, err)
		}
		m.caches[key] = configMapCache{one, informer.HasSynced}
	}
	return changed, nil
}

// alsoWithoutLeading is a cache that is filled before the controller leads.
type alsoWithoutLeading struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (alsoWithoutLeading) NeedLeaderElection() bool { return false }

// find finds the configuration that a label names.
func (m *configMaps) find(ctx context.Context, live bool, name state.Name) (state.Found, error) {
	all, err := m.read(ctx, live, wantedConfigMap{name.ConfigMap, name.Source})
	if err != nil || all.problem != "" {
		return state.Found{Problem: all.problem}, err
	}
	var found state.Found
	for i := range all.profiles {
		p := &all.profiles[i]
		if p.Original == name.Profile {
			return usable(p), nil
		}
		found.Others = append(found.Others, p.Original)
	}
	return found, nil
}

// usable is a configuration, or why it cannot be used.
func usable(p *formats.Profile) state.Found {
	if p.Err != nil {
		return state.Found{Problem: p.Err.Error()}
	}
	return state.Found{Spec: &p.Spec}
}

// read reads a ConfigMap, from its cache unless live. It converts each version once.
func (m *configMaps) read(ctx context.Context, live bool, c wantedConfigMap) (configurations, error) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	from := m.live
	if cached, ok := m.caches[key]; ok && !live && cached.synced() {
		from = cached
	}
	var object corev1.ConfigMap
	err := from.Get(ctx, key, &object)
	switch {
	case apierrors.IsNotFound(err):
		return configurations{problem: fmt.Sprintf("ConfigMap %s does not exist", key)}, nil
	case apierrors.IsForbidden(err):
		return configurations{problem: fmt.Sprintf("ConfigMap %s cannot be read: %v", key, err)}, nil
	case err != nil:
		return configurations{}, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.parsed[c]; ok && p.uid == object.UID && p.version == object.ResourceVersion {
		return p, nil
	}
	p := convert(&object, c)
	p.uid, p.version = object.UID, object.ResourceVersion
	m.parsed[c] = p
	return p, nil
}

// convert converts the configurations of a ConfigMap.
func convert(object *corev1.ConfigMap, c wantedConfigMap) configurations {
	where := fmt.Sprintf("ConfigMap %s/%s", c.Namespace, c.Name)
	data, ok := object.Data[c.Key]
	if !ok {
		return configurations{problem: fmt.Sprintf("%s has no key %s; it has: %s", where, c.Key,
			text.List(slices.Sorted(maps.Keys(object.Data)), mostNamed))}
	}
	documents, err := formats.Read(where+" key "+c.Key, []byte(data))
	if err != nil {
		return configurations{problem: err.Error()}
	}
	var all configurations
	for i := range documents {
		d := &documents[i]
		if d.Format != formatsOf[c.source] {
			return configurations{problem: fmt.Sprintf("%s: its format is that of the %s, and it must be that of %s; check the ConfigMap and the key in the chart's formats", d.Name, d.Format, formatsOf[c.source])}
		}
		all.profiles = append(all.profiles, d.Profiles...)
		all.notes = append(all.notes, d.Notes...)
		for j := range d.Profiles {
			for _, note := range d.Profiles[j].Notes {
				all.notes = append(all.notes, d.Profiles[j].Original+": "+note)
			}
		}
	}
	return all
}

// problems says what is wrong with the configurations, empty: nothing.
func (c *configurations) problems() string {
	texts := []string{c.problem}
	for i := range c.profiles {
		if err := c.profiles[i].Err; err != nil {
			texts = append(texts, err.Error())
		}
	}
	return strings.TrimPrefix(strings.Join(texts, "; "), "; ")
}

// tell writes an event on each ConfigMap that cannot be used any more, or that can be again, or
// of which parts have no counterpart.
func (m *configMaps) tell(ctx context.Context, events recorder.EventRecorder) {
	for _, c := range m.named {
		all, err := m.read(ctx, false, c)
		if err != nil {
			continue // It is read again when the cache has it, or for a node.
		}
		now, notes := all.problems(), strings.Join(all.notes, "; ")
		m.mu.Lock()
		before, noted := m.told[c], m.noted[c]
		m.told[c], m.noted[c] = now, notes
		m.mu.Unlock()
		object := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: all.uid},
		}
		switch now {
		case before:
		case "":
			events.Eventf(object, nil, corev1.EventTypeNormal, names.EventConfigMapValid, "Read", "Key %s can be used again", c.Key)
		default:
			events.Eventf(object, nil, corev1.EventTypeWarning, names.EventConfigMapInvalid, "Read", "%s",
				text.Cut("Nodes that name these configurations keep what they have: "+now, mostNote))
		}
		if notes != "" && notes != noted {
			events.Eventf(object, nil, corev1.EventTypeNormal, names.EventConfigMapPartsIgnored, "Read", "%s",
				text.Cut("Key "+c.Key+" has parts without a counterpart: "+notes, mostNote))
		}
	}
}
