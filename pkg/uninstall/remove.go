package uninstall

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	partOf        = "app.kubernetes.io/part-of"
	component     = "app.kubernetes.io/component"
	instance      = "app.kubernetes.io/instance"
	pluginSuffix  = "-kubelet-plugin"
	componentName = "kubelet-plugin"
)

// Find fills in the names of the installation, by the labels of its DaemonSet, in a
// namespace or, if that is empty, in all. It returns false if there is none.
func (c *Config) Find(ctx context.Context, namespace string) (bool, error) {
	selector := labels.Set{partOf: "tranche", component: componentName}
	sets, err := c.Client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return false, fmt.Errorf("list the DaemonSets with labels %s: %w", selector, err)
	}
	switch len(sets.Items) {
	case 0:
		return false, nil
	case 1:
		c.name(&sets.Items[0])
		return true, nil
	}
	var found []string
	for i := range sets.Items {
		found = append(found, sets.Items[i].Namespace+"/"+sets.Items[i].Name)
	}
	return false, fmt.Errorf("there are several installations: DaemonSets %s; choose one by --namespace", strings.Join(found, ", "))
}

// name takes the names of the installation's objects from its DaemonSet's, as the chart
// derives them.
func (c *Config) name(set *appsv1.DaemonSet) {
	prefix := strings.TrimSuffix(set.Name, pluginSuffix)
	c.Namespace, c.Release, c.DaemonSet = set.Namespace, set.Labels[instance], set.Name
	c.Controller, c.Scheduler, c.ConfigMap = prefix+"-controller", prefix+"-scheduler", prefix+"-uninstall"
}

// Remove does what Run does and then deletes the DaemonSet and the Deployments,
// so that the plugins remove their files from the nodes. It is for installations whose
// tool runs no hooks; the tool removes the remaining objects.
func Remove(ctx context.Context, c Config) error {
	c.setDefaults()
	if err := Run(ctx, c); err != nil {
		return err
	}
	if err := c.deleteWorkloads(ctx); err != nil {
		return err
	}
	return c.awaitPluginEnd(ctx)
}

func (c *Config) deleteWorkloads(ctx context.Context) error {
	for _, d := range c.deployments() {
		err := c.Client.AppsV1().Deployments(c.Namespace).Delete(ctx, d.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Deployment %s/%s: %w", c.Namespace, d.name, err)
		}
	}
	err := c.Client.AppsV1().DaemonSets(c.Namespace).Delete(ctx, c.DaemonSet, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete DaemonSet %s/%s: %w", c.Namespace, c.DaemonSet, err)
	}
	return nil
}

// awaitPluginEnd waits until no plugin runs: then each has removed its files from its node.
func (c *Config) awaitPluginEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	ended, left, err := c.awaitPodsEnd(ctx, componentName)
	if err != nil {
		return err
	}
	if !ended {
		return fmt.Errorf("pods of DaemonSet %s/%s have not ended within %s: %s. If the DaemonSet exists again, "+
			"turn off the tool that created it (automated sync of Argo CD, Flux), and repeat", c.Namespace, c.DaemonSet, c.Deadline, first(left))
	}
	return c.refuseIfBack(ctx)
}

// refuseIfBack fails if another program has created the DaemonSet again.
func (c *Config) refuseIfBack(ctx context.Context) error {
	_, err := c.Client.AppsV1().DaemonSets(c.Namespace).Get(ctx, c.DaemonSet, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fmt.Fprintln(c.Out, "No plugin runs any more, and the nodes are clean. Remove the remaining objects with the tool that installed them.")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read DaemonSet %s/%s: %w", c.Namespace, c.DaemonSet, err)
	}
	return fmt.Errorf("DaemonSet %s/%s was created again: turn off the tool that did it (automated sync of Argo CD, Flux), and repeat", c.Namespace, c.DaemonSet)
}
