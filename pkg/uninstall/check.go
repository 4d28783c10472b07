package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// Check prints the objects of Tranche in the cluster, and changes nothing. It returns the error with
// which Run would refuse.
func Check(ctx context.Context, c Config) error {
	left, err := c.left(ctx)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		fmt.Fprintln(c.Out, "Nothing of Tranche is in the cluster.")
	} else {
		fmt.Fprintf(c.Out, "In the cluster:\n  %s\n", strings.Join(left, "\n  "))
	}
	c.Force = false
	if err := errors.Join(c.refuseIfHeld(ctx), c.refuseIfSwitched(ctx)); err != nil {
		return err
	}
	if c.DaemonSet != "" {
		if err := c.refuseIfSilent(ctx); err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "No pod holds a GPU and no GPU is being changed: release %s in %s can be uninstalled.\n", c.Release, c.Namespace)
	}
	return nil
}

// left returns a line for each kind of objects of Tranche in the cluster.
func (c *Config) left(ctx context.Context) (lines []string, err error) {
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
		{"partitionprofiles of your own (kept)", profilesKind, labeled(names.LabelFromChart + "!=true," + names.LabelFromProject + "!=true"), false},
		{"partitionplans (kept)", plansKind, metav1.ListOptions{}, false},
	}
	for _, kind := range Kinds {
		text := kind.Resource
		if text == kept {
			text += " (kept, unless crds.keep=false)"
		}
		queries = append(queries, query{text, kind, labeled(partOf + "=tranche"), true})
	}
	for _, q := range queries {
		found, err := c.find(ctx, q.kind, metav1.NamespaceAll, q.options, 0)
		switch {
		case err != nil:
			return nil, err
		case len(found) > 0 && q.named:
			lines = append(lines, q.text+": "+some(namesOf(found)))
		case len(found) > 0:
			lines = append(lines, fmt.Sprintf("%s: %d", q.text, len(found)))
		}
	}
	created, err := c.findTemplates(ctx)
	if len(created) > 0 {
		lines = append(lines, "resourceclaimtemplates that the controller created: "+some(namesOf(created)))
	}
	nodes, nodesErr := c.markedNodes(ctx)
	if len(nodes) > 0 {
		lines = append(lines, "nodes with taints or paused clients: "+some(nodes))
	}
	return lines, errors.Join(err, nodesErr)
}
