package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// clear removes what the controller has left in the cluster: taints and labels of nodes, then the
// PartitionProfiles, GPUResourceMaps and ResourceClaimTemplates that it has created, and the Leases.
// It keeps other profiles.
func (c *Config) clear(ctx context.Context) error {
	if err := c.clearNodes(ctx); err != nil {
		return err
	}
	return errors.Join(c.deleteProfiles(ctx), c.deleteMaps(ctx), c.deleteTemplates(ctx), c.deleteLeases(ctx))
}

func (c *Config) clearNodes(ctx context.Context) error {
	marked, err := c.markedNodes(ctx)
	if err != nil {
		return err
	}
	errs := lists.Map(namesOf(marked), func(name string) error { return c.clearNode(ctx, name) })
	return errors.Join(errs...)
}

// markedNodes returns the nodes with our taint or paused monitoring pods.
func (c *Config) markedNodes(ctx context.Context) (marked []metav1.ObjectMeta, err error) {
	err = pages(ctx, func(ctx context.Context, next string) (string, error) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return "", fmt.Errorf("list tainted nodes: %w", err)
		}
		for i := range list.Items {
			if nodePatch(&list.Items[i]) != nil {
				marked = append(marked, metav1.ObjectMeta{Name: list.Items[i].Name})
			}
		}
		return list.Continue, nil
	})
	return marked, err
}

func (c *Config) clearNode(ctx context.Context, name string) error {
	nodes := c.Client.CoreV1().Nodes()
	// The kubelet and others also write the node.
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
		return fmt.Errorf("remove the taint of node %s and resume paused monitoring pods: %w", name, err)
	}
	fmt.Fprintf(c.Out, "Node %s has neither taints nor paused monitoring pods of Tranche any more.\n", name)
	return nil
}

// nodePatch returns a patch that removes our taint from a node, and sets labels that pause monitoring pods back
// to "true". It returns nil if there is nothing to do.
func nodePatch(node *corev1.Node) []byte {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	found := false
	others := []corev1.Taint{}
	for _, t := range node.Spec.Taints {
		if t.Key != names.TaintNodeSwitching {
			others = append(others, t)
		}
	}
	if len(others) < len(node.Spec.Taints) {
		patch["spec"], found = map[string]any{"taints": others}, true
	}
	running := map[string]string{}
	for key, value := range node.Labels {
		if value == names.PausedValue {
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

// ofChart selects the PartitionProfiles from the chart, ofProjects those from other projects'
// configurations.
const (
	ofChart    = names.LabelCreatedFrom + "=" + names.CreatedFromChart
	ofProjects = names.LabelCreatedFrom + "=" + names.CreatedFromConfigMap
)

func (c *Config) deleteProfiles(ctx context.Context) error {
	var errs []error
	for _, selector := range []string{ofChart, ofProjects} {
		found, err := c.find(ctx, profilesKind, metav1.NamespaceAll, labeled(selector), 0)
		errs = append(errs, err, c.deleteFound(ctx, profilesKind, found))
	}
	return errors.Join(errs...)
}

// deleteMaps deletes all GPUResourceMaps. Nobody else writes any.
func (c *Config) deleteMaps(ctx context.Context) error {
	found, err := c.find(ctx, mapsKind, metav1.NamespaceAll, metav1.ListOptions{}, 0)
	return errors.Join(err, c.deleteFound(ctx, mapsKind, found))
}

// deleteTemplates deletes the ResourceClaimTemplates that the controller created, even if the chart's
// translate is off now.
func (c *Config) deleteTemplates(ctx context.Context) error {
	found, err := c.findTemplates(ctx)
	return errors.Join(err, c.deleteFound(ctx, templatesKind, found))
}

func (c *Config) findTemplates(ctx context.Context) ([]metav1.ObjectMeta, error) {
	found, err := c.find(ctx, templatesKind, metav1.NamespaceAll, labeled(names.LabelCreatedFrom+"="+names.CreatedFromAmount), 0)
	return slices.DeleteFunc(found, func(o metav1.ObjectMeta) bool {
		// Others can also set the label.
		_, err := claimtemplate.Parse(o.Name)
		return err != nil
	}), err
}

func (c *Config) deleteGPUNodes(ctx context.Context) error {
	all, err := c.find(ctx, gpuNodesKind, metav1.NamespaceAll, metav1.ListOptions{}, 0)
	if err := errors.Join(err, c.deleteFound(ctx, gpuNodesKind, all)); err != nil || len(all) == 0 {
		return err
	}
	fmt.Fprintf(c.Out, "GPUNodes are deleted: %d.\n", len(all))
	return nil
}

// deleteLeases deletes the Leases of controller and scheduler, which Helm does not know. The scheduler's
// Lease has the name of its Deployment.
func (c *Config) deleteLeases(ctx context.Context) error {
	var errs []error
	for _, name := range []string{names.ControllerName, c.Scheduler} {
		if name == "" || c.Namespace == metav1.NamespaceAll {
			continue
		}
		err := c.Client.CoordinationV1().Leases(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Lease %s/%s: %w", c.Namespace, name, err))
		}
	}
	return errors.Join(errs...)
}
