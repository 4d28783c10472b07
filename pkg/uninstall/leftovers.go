package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// page is how many objects are read at once.
const page = 500

// clear takes away what the controller has left in the cluster: taints of nodes, labels
// by which clients are paused, and then what it has made of the chart's
// files and what is known of nodes, and the Leases. Profiles that people made stay.
func (c *Config) clear(ctx context.Context) error {
	if err := c.clearNodes(ctx); err != nil {
		return err
	}
	return errors.Join(c.deleteProfiles(ctx), c.deleteTemplates(ctx), c.deleteGPUNodes(ctx), c.deleteLeases(ctx))
}

// clearNodes takes our taint off the nodes, and lets paused clients run again.
func (c *Config) clearNodes(ctx context.Context) error {
	marked, err := c.markedNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range marked {
		errs = append(errs, c.clearNode(ctx, name))
	}
	return errors.Join(errs...)
}

// markedNodes are the nodes with our taint or paused clients.
func (c *Config) markedNodes(ctx context.Context) (marked []string, err error) {
	err = pages(func(next string) (string, error) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return "", fmt.Errorf("list the nodes to see which are tainted: %w", err)
		}
		for i := range list.Items {
			if nodePatch(&list.Items[i]) != nil {
				marked = append(marked, list.Items[i].Name)
			}
		}
		return list.Continue, nil
	})
	return marked, err
}

func (c *Config) clearNode(ctx context.Context, name string) error {
	nodes := c.Client.CoreV1().Nodes()
	// The kubelet and others write the node, too.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch := nodePatch(node)
		if patch == nil {
			return nil
		}
		_, err = nodes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take the taint off node %s and let paused clients run: %w", name, err)
	}
	fmt.Fprintf(c.Out, "Node %s has neither taints nor paused clients of Tranche any more.\n", name)
	return nil
}

// nodePatch takes away what is ours of a node, nil: nothing. A label that pauses a
// client was "true".
func nodePatch(node *corev1.Node) []byte {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	found := false
	others := []corev1.Taint{}
	for _, t := range node.Spec.Taints {
		if t.Key != v1alpha1.TaintRepartitioning {
			others = append(others, t)
		}
	}
	if len(others) < len(node.Spec.Taints) {
		patch["spec"], found = map[string]any{"taints": others}, true
	}
	running := map[string]string{}
	for key, value := range node.Labels {
		if value == v1alpha1.PausedValue {
			running[key] = "true"
		}
	}
	if len(running) > 0 {
		metadata["labels"], found = running, true
	}
	if !found {
		return nil
	}
	out, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("a patch of strings and taints: %v", err))
	}
	return out
}

// deleteProfiles deletes the PartitionProfiles that were made of the chart's files.
func (c *Config) deleteProfiles(ctx context.Context) error {
	list, err := c.Ours.PartitionProfiles().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelFromChart + "=true"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the PartitionProfiles of the chart: %w", err)
	}
	var errs []error
	for i := range list.Items {
		err := c.Ours.PartitionProfiles().Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete PartitionProfile %s: %w", list.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// deleteTemplates deletes the ResourceClaimTemplates that were made of an amount. They can be left
// from a time when the chart's translate was on.
func (c *Config) deleteTemplates(ctx context.Context) error {
	var errs []error
	err := pages(func(next string) (string, error) {
		list, err := c.Client.ResourceV1().ResourceClaimTemplates(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			LabelSelector: v1alpha1.LabelFromAmount + "=true", Limit: page, Continue: next,
		})
		if err != nil {
			return "", fmt.Errorf("list the ResourceClaimTemplates that were made of an amount: %w", err)
		}
		for i := range list.Items {
			// Others can set the label, too.
			o := &list.Items[i]
			if _, err := claimtemplate.Parse(o.Name); err != nil {
				continue
			}
			err := c.Client.ResourceV1().ResourceClaimTemplates(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("delete ResourceClaimTemplate %s of namespace %s: %w", o.Name, o.Namespace, err))
			}
		}
		return list.Continue, nil
	})
	return errors.Join(append(errs, err)...)
}

// deleteGPUNodes deletes all of them. Their plugins do not create them again while they
// are told to clean up.
func (c *Config) deleteGPUNodes(ctx context.Context) error {
	all, err := c.listGPUNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range all {
		err := c.Ours.GPUNodes().Delete(ctx, all[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete GPUNode %s: %w", all[i].Name, err))
		}
	}
	if len(errs) > 0 || len(all) == 0 {
		return errors.Join(errs...)
	}
	fmt.Fprintf(c.Out, "GPUNodes are deleted: %d.\n", len(all))
	left, err := c.listGPUNodes(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	var names []string
	for i := range left {
		names = append(names, left[i].Name)
	}
	fmt.Fprintf(c.Out, "Some are there still, or again; delete them by hand: kubectl delete gpunodes %s\n", strings.Join(names, " "))
	return nil
}

// pages reads one page after the other. Read returns where to go on, empty: that was
// the last one.
func pages(read func(next string) (string, error)) error {
	for next := ""; ; {
		following, err := read(next)
		if err != nil || following == "" {
			return err
		}
		next = following
	}
}
