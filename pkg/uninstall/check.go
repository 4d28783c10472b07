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

// kept are the kinds of the chart that uninstalling leaves by default.
const kept = "customresourcedefinitions"

// Kinds are the kinds of objects that the chart and the programs create, as they are
// found by the label part-of. Pods come first: they show that something still runs.
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

// Check prints what Run would take away and what else of Tranche is in the cluster, and
// changes nothing. It returns the error with which Run would refuse.
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
		fmt.Fprintf(c.Out, "No pod holds a GPU and no GPU is being changed: release %s in %s can be uninstalled.\n", c.Release, c.Namespace)
	}
	return nil
}

// left lists what of Tranche is in the cluster, a line for each kind.
func (c *Config) left(ctx context.Context) (lines []string, err error) {
	found, err := c.find(ctx, slicesKind, metav1.NamespaceAll, published, 0)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		lines = append(lines, fmt.Sprintf("resourceslices of %s: %d", names.DriverName, len(found)))
	}
	nodes, err := c.markedNodes(ctx)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		lines = append(lines, "nodes with taints or paused clients: "+some(nodes))
	}
	for _, of := range []struct {
		text, selector string
		kind           schema.GroupVersionResource
	}{
		{"gpunodes", "", gpuNodesKind},
		{"partitionprofiles of the chart", ofChart, profilesKind},
		{"partitionprofiles of your own (kept)", names.LabelFromChart + "!=true", profilesKind},
		{"partitionplans (kept)", "", plansKind},
	} {
		found, err := c.find(ctx, of.kind, metav1.NamespaceAll, labeled(of.selector), 0)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d", of.text, len(found)))
		}
	}
	for _, kind := range Kinds {
		found, err := c.find(ctx, kind, metav1.NamespaceAll, labeled(partOf+"=tranche"), 0)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			continue
		}
		note := ""
		if kind.Resource == kept {
			note = " (kept, unless crds.keep=false)"
		}
		lines = append(lines, kind.Resource+note+": "+some(namesOf(found)))
	}
	made, err := c.findTemplates(ctx)
	if len(made) > 0 {
		lines = append(lines, "resourceclaimtemplates that were made of an amount: "+some(namesOf(made)))
	}
	return lines, err
}
