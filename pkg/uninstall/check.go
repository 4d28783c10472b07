package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// kept are the kinds of the chart that uninstalling leaves by default.
const kept = "customresourcedefinitions"

// templates are also made by the controller, with another label.
var templates = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaimtemplates"}

// Kinds are the kinds of objects that the chart and the programs create, as they are
// found by the label part-of. Pods come first: they show that something still runs.
var Kinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
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
	templates,
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"},
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"},
	{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: kept},
}

// Check prints what Run would take away and what else of Tranche is in the cluster, and
// changes nothing. It returns the error with which Run would refuse.
func Check(ctx context.Context, c Config, all metadata.Interface) error {
	left, err := c.left(ctx, all)
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
func (c *Config) left(ctx context.Context, all metadata.Interface) (lines []string, err error) {
	published, err := c.published(ctx)
	if err != nil {
		return nil, err
	}
	if len(published) > 0 {
		lines = append(lines, fmt.Sprintf("resourceslices of %s: %d", gpu.DriverName, len(published)))
	}
	nodes, err := c.markedNodes(ctx)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		lines = append(lines, "nodes with taints or paused clients: "+some(nodes))
	}
	gpuNodes, err := c.listGPUNodes(ctx)
	if err != nil {
		return nil, err
	}
	if len(gpuNodes) > 0 {
		lines = append(lines, fmt.Sprintf("gpunodes: %d", len(gpuNodes)))
	}
	profiles, err := c.countProfiles(ctx)
	if err != nil {
		return nil, err
	}
	lines = append(lines, profiles...)
	plans, err := c.countPlans(ctx)
	if err != nil {
		return nil, err
	}
	if plans > 0 {
		lines = append(lines, fmt.Sprintf("partitionplans (kept): %d", plans))
	}
	for _, kind := range Kinds {
		names, err := labeled(ctx, all, kind, partOf+"=tranche")
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			continue
		}
		note := ""
		if kind.Resource == kept {
			note = " (kept, unless crds.keep=false)"
		}
		lines = append(lines, kind.Resource+note+": "+some(names))
	}
	made, err := labeled(ctx, all, templates, v1alpha1.LabelFromAmount+"=true")
	made = slices.DeleteFunc(made, func(name string) bool {
		// Others can set the label, too.
		_, err := claimtemplate.Parse(name)
		return err != nil
	})
	if len(made) > 0 {
		lines = append(lines, "resourceclaimtemplates that were made of an amount: "+some(made))
	}
	return lines, err
}

// labeled are the names of the objects of a kind with a label.
func labeled(ctx context.Context, all metadata.Interface, kind schema.GroupVersionResource, label string) (names []string, err error) {
	list, err := all.Resource(kind).List(ctx, metav1.ListOptions{LabelSelector: label})
	if apierrors.IsNotFound(err) {
		return nil, nil // the cluster does not have this kind
	}
	if err != nil {
		return nil, fmt.Errorf("list %s with label %s: %w", kind.GroupResource(), label, err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// countProfiles counts the PartitionProfiles of the chart and those of people.
func (c *Config) countProfiles(ctx context.Context) (lines []string, err error) {
	list, err := c.Ours.PartitionProfiles().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the PartitionProfiles: %w", err)
	}
	ofChart := 0
	for i := range list.Items {
		if list.Items[i].Labels[v1alpha1.LabelFromChart] == "true" {
			ofChart++
		}
	}
	if ofChart > 0 {
		lines = append(lines, fmt.Sprintf("partitionprofiles of the chart: %d", ofChart))
	}
	if own := len(list.Items) - ofChart; own > 0 {
		lines = append(lines, fmt.Sprintf("partitionprofiles of your own (kept): %d", own))
	}
	return lines, nil
}

// countPlans counts the PartitionPlans. All are made by people.
func (c *Config) countPlans(ctx context.Context) (int, error) {
	list, err := c.Ours.PartitionPlans().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list the PartitionPlans: %w", err)
	}
	return len(list.Items), nil
}

// few is how many objects of a kind are named.
const few = 5

// some counts names and gives the first ones.
func some(names []string) string {
	if len(names) > few {
		return fmt.Sprintf("%d (%s, …)", len(names), strings.Join(names[:few], ", "))
	}
	return fmt.Sprintf("%d (%s)", len(names), strings.Join(names, ", "))
}
