package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/api/names"
)

// kept is the kind of the chart that uninstalling keeps by default.
const kept = "customresourcedefinitions"

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
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: kept},
}

// Report is what of Tranche is in the cluster. `kubectl tranche uninstall --check -o json` prints its
// JSON form.
type Report struct {
	// Namespace and Release are those of the installation, empty if there is none.
	Namespace string `json:"namespace,omitempty"`
	Release   string `json:"releaseName,omitempty"`
	// Found are the objects of Tranche, and those that it has changed, by kind.
	Found []Found `json:"found"`
	// Refused is true if Tranche cannot be uninstalled now, and Refusal says why.
	Refused bool   `json:"refused"`
	Refusal string `json:"message,omitempty"`
}

// Found are objects of one resource.
type Found struct {
	// Resource is theirs, as in RBAC rules. Description says what they are, in the plural, for people.
	Resource    string `json:"resource"`
	Description string `json:"description"`
	Count       int    `json:"count"`
	// Names are empty for objects of which only the number matters.
	Names []string `json:"names,omitempty"`
}

// Check reports the objects of Tranche in the cluster, and changes nothing. An ErrRefused
// is the error with which Run would refuse; then there is a report, too.
func Check(ctx context.Context, c Config) (*Report, error) {
	found, err := c.found(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{Namespace: c.Namespace, Release: c.Release, Found: found}
	c.Force = false
	err = errors.Join(c.refuseIfHeld(ctx), c.refuseIfSwitched(ctx))
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
	if len(r.Found) == 0 {
		return "Nothing of Tranche is in the cluster.\n"
	}
	var b strings.Builder
	b.WriteString("In the cluster:\n")
	for _, f := range r.Found {
		if len(f.Names) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", f.Description, some(f.Names))
		} else {
			fmt.Fprintf(&b, "  %s: %d\n", f.Description, f.Count)
		}
	}
	if r.Refusal == "" && r.Release != "" {
		fmt.Fprintf(&b, "No pod holds a GPU and no GPU is being changed: release %s in %s can be uninstalled.\n", r.Release, r.Namespace)
	}
	return b.String()
}

// found returns the objects of Tranche in the cluster.
func (c *Config) found(ctx context.Context) ([]Found, error) {
	type query struct {
		text    string
		kind    schema.GroupVersionResource
		options metav1.ListOptions
		named   bool
	}
	queries := []query{
		{"resourceslices of " + names.DriverName, slicesKind, published, false},
		{"gpunodes", gpuNodesKind, metav1.ListOptions{}, false},
		{"partitionprofiles of the chart", profilesKind, labeled(ofChart), false},
		{"partitionprofiles of other projects' configurations", profilesKind, labeled(ofProjects), false},
		{"partitionprofiles of your own (kept)", profilesKind, labeled(names.LabelCreatedFrom + " notin (" + names.CreatedFromChart + "," + names.CreatedFromConfigMap + ")"), false},
		{"partitionplans (kept)", plansKind, metav1.ListOptions{}, false},
	}
	for _, kind := range Kinds {
		text := kind.Resource
		if text == kept {
			text += " (kept, unless crds.keep=false)"
		}
		queries = append(queries, query{text, kind, labeled(partOf + "=tranche"), true})
	}
	all := []Found{}
	add := func(kind schema.GroupVersionResource, description string, count int, names []string) {
		if count > 0 {
			all = append(all, Found{kind.GroupResource().String(), description, count, names})
		}
	}
	for _, q := range queries {
		found, err := c.find(ctx, q.kind, metav1.NamespaceAll, q.options, 0)
		if err != nil {
			return nil, err
		}
		var names []string
		if q.named {
			names = namesOf(found)
		}
		add(q.kind, q.text, len(found), names)
	}
	created, err := c.findTemplates(ctx)
	add(templatesKind, "resourceclaimtemplates that the controller created", len(created), namesOf(created))
	nodes, nodesErr := c.markedNodes(ctx)
	add(corev1.SchemeGroupVersion.WithResource("nodes"), "nodes with taints or paused monitoring pods", len(nodes), nodes)
	return all, errors.Join(err, nodesErr)
}
