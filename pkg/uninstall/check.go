package uninstall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// definitions hold PartitionProfiles and PartitionPlans: these go with them.
	definitions = "customresourcedefinitions"
	// keepAnnotation has the value keep on what Helm does not delete.
	keepAnnotation = "helm.sh/resource-policy"
)

// Kinds are the kinds of objects that the chart and the programs create with the label part-of. Pods
// come first, because they show that something still runs.
var Kinds = []schema.GroupVersionResource{
	podsKind,
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "resourcequotas"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
	{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"},
	templatesKind,
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"},
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"},
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: definitions},
}

// Report is what of Tranche is in the cluster. `kubectl tranche uninstall --check -o json` prints its
// JSON form.
type Report struct {
	// Namespace and Release are those of the installation, empty if there is none.
	Namespace string `json:"namespace,omitempty"`
	Release   string `json:"releaseName,omitempty"`
	// Found are the objects of Tranche, and those that it has changed, by kind.
	Found []Found `json:"found"`
	// Unread are the kinds that could not be read.
	Unread []text.Unread `json:"unread,omitempty"`
	// Refused is true if Tranche cannot be uninstalled now, and Refusal says why.
	Refused bool   `json:"refused"`
	Refusal string `json:"message,omitempty"`
}

// Found are objects of one resource.
type Found struct {
	// Resource is as `kubectl auth can-i list` takes it. Nodes have taints, or paused monitoring pods.
	Resource string `json:"resource"`
	// CreatedFrom is the value of their label created-from, empty without it.
	CreatedFrom string `json:"createdFrom,omitempty"`
	// Kept is true if uninstalling the chart keeps them. If the CustomResourceDefinitions cannot be read,
	// it is as with the chart's default crds.keep.
	Kept  bool `json:"kept"`
	Count int  `json:"count"`
	// Names are empty for objects of which only the number matters.
	Names []string `json:"names,omitempty"`
}

// Check reports the objects of Tranche in the cluster, and changes nothing. An ErrRefused
// is the error with which Run would refuse; then there is a report, too.
func Check(ctx context.Context, c Config) (*Report, error) {
	r := &Report{Namespace: c.Namespace, Release: c.Release, Found: []Found{}}
	if err := c.findAll(ctx, r); err != nil {
		return nil, err
	}
	c.Force = false
	err := errors.Join(c.refuseIfHeld(ctx), c.refuseIfSwitched(ctx))
	if err == nil && c.DaemonSet != "" {
		err = c.refuseIfSilent(ctx)
	}
	switch {
	case errors.Is(err, ErrRefused):
		r.Refused, r.Refusal = true, err.Error()
	case err != nil:
		return nil, err
	}
	return r, err
}

// String returns the report as text, without the refusal.
func (r *Report) String() string {
	var b strings.Builder
	switch {
	case len(r.Found) > 0:
		b.WriteString("In the cluster:\n")
	case len(r.Unread) == 0:
		b.WriteString("Nothing of Tranche is in the cluster.\n")
	}
	kept := " (kept)"
	if slices.ContainsFunc(r.Unread, func(u text.Unread) bool { return strings.HasPrefix(u.Resource, definitions) }) {
		kept = " (kept, unless crds.keep=false)"
	}
	for i := range r.Found {
		f := &r.Found[i]
		b.WriteString("  " + f.what())
		if f.Kept {
			b.WriteString(kept)
		}
		said := strconv.Itoa(f.Count)
		if len(f.Names) > 0 {
			said = some(f.Names)
		}
		b.WriteString(": " + said + "\n")
	}
	for _, sentence := range text.Sentences(r.Unread) {
		b.WriteString("Note: " + sentence + "\n")
	}
	if len(r.Found) > 0 && r.Refusal == "" && r.Release != "" {
		fmt.Fprintf(&b, "No pod holds a GPU and no GPU is being changed: release %s in %s can be uninstalled.\n", r.Release, r.Namespace)
	}
	return b.String()
}

// what names the objects, in the plural.
func (f *Found) what() string {
	resource, _, _ := strings.Cut(f.Resource, ".")
	switch {
	case f.CreatedFrom == names.CreatedFromChart:
		return resource + " of the chart"
	case f.CreatedFrom == names.CreatedFromConfigMap:
		return resource + " of other projects' configurations"
	case f.CreatedFrom == names.CreatedFromAmount:
		return resource + " that the controller created"
	case resource == profilesKind.Resource:
		return resource + " of your own"
	case resource == nodesKind.Resource:
		return resource + " with taints or paused monitoring pods"
	}
	return resource
}

func (c *Config) findAll(ctx context.Context, r *Report) error {
	type query struct {
		kind  schema.GroupVersionResource
		find  func() ([]metav1.ObjectMeta, error)
		named bool
	}
	var queries []query
	add := func(kind schema.GroupVersionResource, options metav1.ListOptions, named bool) {
		queries = append(queries, query{kind, func() ([]metav1.ObjectMeta, error) { return c.find(ctx, kind, metav1.NamespaceAll, options, 0) }, named})
	}
	add(slicesKind, published, false)
	for _, kind := range []schema.GroupVersionResource{gpuNodesKind, profilesKind, plansKind, mapsKind} {
		add(kind, metav1.ListOptions{}, false)
	}
	for _, kind := range Kinds {
		add(kind, labeled(partOf+"=tranche"), true)
	}
	queries = append(queries,
		query{templatesKind, func() ([]metav1.ObjectMeta, error) { return c.findTemplates(ctx) }, true},
		query{nodesKind, func() ([]metav1.ObjectMeta, error) { return c.markedNodes(ctx) }, true})
	keeps := true
	for _, q := range queries {
		found, err := q.find()
		switch {
		case apierrors.IsForbidden(err):
			r.Unread = append(r.Unread, text.Unread{
				Verb: "list", Resource: q.kind.GroupResource().String(), Consequence: "which " + q.kind.Resource + " there are is not known",
			}.Refused())
		case err != nil:
			return err
		case q.kind.Resource == definitions:
			keeps = !slices.ContainsFunc(found, func(o metav1.ObjectMeta) bool { return o.Annotations[keepAnnotation] != "keep" })
		}
		from := map[string][]metav1.ObjectMeta{}
		for i := range found {
			value := found[i].Labels[names.LabelCreatedFrom]
			from[value] = append(from[value], found[i])
		}
		for _, value := range slices.Sorted(maps.Keys(from)) {
			f := Found{Resource: q.kind.GroupResource().String(), CreatedFrom: value, Count: len(from[value])}
			if q.named {
				f.Names = namesOf(from[value])
			}
			r.Found = append(r.Found, f)
		}
	}
	for i := range r.Found {
		r.Found[i].Kept = keeps && r.Found[i].lasts()
	}
	return nil
}

// lasts reports whether objects stay if the CustomResourceDefinitions do.
func (f *Found) lasts() bool {
	switch f.Resource {
	case profilesKind.GroupResource().String():
		return f.CreatedFrom != names.CreatedFromChart && f.CreatedFrom != names.CreatedFromConfigMap
	case plansKind.GroupResource().String():
		return true
	}
	return strings.HasPrefix(f.Resource, definitions)
}
