package adopt

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

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/text"
)

// configMaps has the ConfigMaps with the configurations of other projects. No other ConfigMap
// is read.
type configMaps struct {
	config *Config
	live   client.Reader
	named  []wanted
	// caches have one ConfigMap each. Without one, the API server is asked.
	caches map[types.NamespacedName]configMapCache

	// mu guards what follows.
	mu     sync.Mutex
	parsed map[wanted]*configurations
	// told and noted are the last problem and the last notes that were reported of each.
	told, noted map[wanted]string
}

// wanted is a ConfigMap and whose it is.
type wanted struct {
	ConfigMap
	project Project
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

func newConfigMaps(live client.Reader, config *Config) *configMaps {
	m := &configMaps{
		config: config, live: live, caches: map[types.NamespacedName]configMapCache{},
		parsed: map[wanted]*configurations{}, told: map[wanted]string{}, noted: map[wanted]string{},
	}
	for _, project := range slices.Sorted(maps.Keys(config.Projects)) {
		if c := config.Projects[project]; c != (ConfigMap{}) {
			m.named = append(m.named, wanted{c, project})
		}
	}
	return m
}

// Watch caches the ConfigMaps. The channel gets an event when one changes, and one at the
// beginning. A ConfigMap that cannot be read does not delay the start of the controller.
func (a *Adopter) Watch(ctx context.Context, mgr manager.Manager) (<-chan event.GenericEvent, error) {
	m := a.configMaps
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

// find finds the configuration that a label names, nil: there is none. others are the names of those
// that there are, problem is why it cannot be used.
func (m *configMaps) find(ctx context.Context, live bool, n *name) (found *formats.Profile, others []string, problem string, err error) {
	all, err := m.read(ctx, live, wanted{n.configMap, n.project})
	switch {
	case err != nil:
		return nil, nil, "", err
	case all.problem != "":
		return nil, nil, all.problem, nil
	}
	for i := range all.profiles {
		p := &all.profiles[i]
		switch {
		case p.Original != n.value:
			others = append(others, p.Original)
		case p.Err != nil:
			return nil, nil, p.Err.Error(), nil //nolint:nilerr // it is the problem of the configuration
		default:
			return p, nil, "", nil
		}
	}
	return nil, others, "", nil
}

// sharing returns the configuration of the device plugin for a node with these labels, or nil if there is none.
func (m *configMaps) sharing(ctx context.Context, live bool, of map[string]string) (found *formats.Profile, problem string, err error) {
	c, followed := m.config.Projects[DevicePlugin]
	what, value := "the node's label "+names.LabelDevicePluginConfig, of[names.LabelDevicePluginConfig]
	if value == "" {
		what, value = "the default configuration of the device plugin", m.config.DefaultConfig
	}
	if !followed || value == "" {
		return nil, "", nil
	}
	all, err := m.read(ctx, live, wanted{c, DevicePlugin})
	switch {
	case err != nil:
		return nil, "", err
	case all.problem != "":
		return nil, all.problem, nil
	case len(all.profiles) == 0:
		return nil, "", nil // The label can be left over from a device plugin.
	}
	var others []string
	for i := range all.profiles {
		p := &all.profiles[i]
		switch {
		case p.Original != strings.TrimSuffix(value, yamlFile):
			others = append(others, p.Original)
		case p.Err != nil:
			return nil, p.Err.Error(), nil //nolint:nilerr // it is the problem of the configuration
		default:
			return p, "", nil
		}
	}
	return nil, fmt.Sprintf("%s is %q, which does not exist; existing ones: %s", what, value, strings.Join(others, ", ")), nil
}

// yamlFile is the optional extension of the device plugin's files. A label can have it.
const yamlFile = ".yaml"

// read reads a ConfigMap, from its cache unless live. It converts each version once.
func (m *configMaps) read(ctx context.Context, live bool, c wanted) (*configurations, error) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	from := m.live
	if cached, ok := m.caches[key]; ok && !live && cached.synced() {
		from = cached
	}
	var object corev1.ConfigMap
	err := from.Get(ctx, key, &object)
	switch {
	case apierrors.IsNotFound(err):
		return &configurations{problem: fmt.Sprintf("ConfigMap %s does not exist", key)}, nil
	case apierrors.IsForbidden(err):
		return &configurations{problem: fmt.Sprintf("ConfigMap %s cannot be read: %v", key, err)}, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
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
func convert(object *corev1.ConfigMap, c wanted) *configurations {
	where := fmt.Sprintf("ConfigMap %s/%s", c.Namespace, c.Name)
	all := &configurations{}
	if c.project == DevicePlugin {
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			p := formats.ReadDevicePlugin(where+" key "+key, strings.TrimSuffix(key, yamlFile), []byte(object.Data[key]))
			all.add(p)
		}
		return all
	}
	data, ok := object.Data[c.Key]
	if !ok {
		return &configurations{problem: fmt.Sprintf("%s has no key %s; it has: %s", where, c.Key,
			text.List(slices.Sorted(maps.Keys(object.Data)), mostNamed))}
	}
	documents, err := formats.Read(where+" key "+c.Key, []byte(data))
	if err != nil {
		return &configurations{problem: err.Error()}
	}
	format := formatOf(c.project)
	for i := range documents {
		d := &documents[i]
		if d.Format != format {
			return &configurations{problem: fmt.Sprintf("%s: its format is that of the %s, and it must be that of %s; check the ConfigMap and the key in the chart's formats", d.Name, d.Format, format)}
		}
		all.notes = append(all.notes, d.Notes...)
		for _, p := range d.Profiles {
			all.add(p)
		}
	}
	return all
}

func (c *configurations) add(p formats.Profile) {
	c.profiles = append(c.profiles, p)
	for _, note := range p.Notes {
		c.notes = append(c.notes, p.Original+": "+note)
	}
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

// Report writes an event on each ConfigMap that cannot be used any more, or that can be again, or
// of which parts have no counterpart.
func (a *Adopter) Report(ctx context.Context) {
	m := a.configMaps
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
			a.Events.Eventf(object, nil, corev1.EventTypeNormal, names.EventConfigMapValid, "Read", "Key %s can be used again", c.Key)
		default:
			a.Events.Eventf(object, nil, corev1.EventTypeWarning, names.EventConfigMapInvalid, "Read", "%s",
				text.Note("Nodes that name these configurations keep what they have: "+now))
		}
		if notes != "" && notes != noted {
			a.Events.Eventf(object, nil, corev1.EventTypeNormal, names.EventConfigMapPartsIgnored, "Read", "%s",
				text.Note("Key "+c.Key+" has parts without a counterpart: "+notes))
		}
	}
}
