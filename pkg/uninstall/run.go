package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// lookInterval and longestInterval are the minimum and the maximum polling interval.
	lookInterval    = time.Second
	longestInterval = 10 * time.Second
	// stopTime is the time for the pods of the Deployments to terminate. Their grace period is 30 s.
	stopTime = 45 * time.Second
	// callTimeout is the timeout of one API call.
	callTimeout = 15 * time.Second
)

const (
	partOf        = "app.kubernetes.io/part-of"
	component     = "app.kubernetes.io/component"
	instance      = "app.kubernetes.io/instance"
	pluginSuffix  = "-kubelet-plugin"
	componentName = "kubelet-plugin"
)

// Config configures Run and Check.
type Config struct {
	Client kubernetes.Interface
	// Ours reads Tranche's objects, Objects the metadata of all objects.
	Ours    client.Interface
	Objects metadata.Interface
	// Namespace, Release and Revision are those of the Helm release. Revision is 0 if a user runs
	// this, instead of Helm.
	Namespace string
	Release   string
	Revision  int
	// DaemonSet is the name of the plugins' DaemonSet, or empty if it does not exist.
	DaemonSet string
	// Controller and Scheduler are the names of the Deployments of the controller and the second
	// scheduler, or empty if they do not exist.
	Controller string
	Scheduler  string
	// Force uninstalls even if pods hold GPUs, GPUs are being changed, or nodes do not respond.
	Force bool
	// Deadline is the time for the plugins to withdraw their GPUs and terminate. 0: no limit.
	Deadline time.Duration
	// Out receives messages. Progress, which may be nil, is called with what Run waits for.
	Out      io.Writer
	Progress func(format string, args ...any)

	// Look is the minimum polling interval, for tests.
	Look time.Duration
}

// Find sets the names of the installation by the labels of its DaemonSet, in a namespace or, if that is
// empty, in all. It reports whether there is an installation.
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
	found := lists.Map(sets.Items, func(d appsv1.DaemonSet) string { return d.Namespace + "/" + d.Name })
	return false, fmt.Errorf("there are several installations: DaemonSets %s; choose one by --namespace", strings.Join(found, ", "))
}

// name derives the names of the installation's objects from its DaemonSet, as the chart does.
func (c *Config) name(set *appsv1.DaemonSet) {
	prefix := strings.TrimSuffix(set.Name, pluginSuffix)
	c.Namespace, c.Release, c.DaemonSet = set.Namespace, set.Labels[instance], set.Name
	c.Controller, c.Scheduler = prefix+"-controller", prefix+"-scheduler"
}

// ErrUnfinished is wrapped by the error with which Run ends after Config.Deadline.
var ErrUnfinished = errors.New("the uninstallation is not complete")

// Run removes the workloads of Tranche, and all objects that Helm or another tool did not create. If it
// refuses, nothing has changed. After another error, it can be repeated.
func Run(ctx context.Context, c Config) error {
	if c.Look == 0 {
		c.Look = lookInterval
	}
	if c.Deadline == 0 {
		c.Deadline = math.MaxInt64
	}
	if err := c.refuse(ctx); err != nil {
		return err
	}
	if err := c.remove(ctx); err != nil {
		return fmt.Errorf("%w\nTranche is only partially removed: uninstall it again, or install it again to keep it", err)
	}
	return nil
}

func (c *Config) remove(ctx context.Context) error {
	if err := c.stop(ctx); err != nil {
		return err
	}
	if err := c.clear(ctx); err != nil {
		return err
	}
	if c.DaemonSet != "" {
		if err := c.removePlugins(ctx); err != nil {
			return err
		}
	}
	// Only now, because plugins would recreate them.
	return c.deleteGPUNodes(ctx)
}

// stop deletes the controller, which would recreate what is removed, and the second scheduler, which
// would recreate its Lease.
func (c *Config) stop(ctx context.Context) error {
	for _, name := range []string{c.Controller, c.Scheduler} {
		if name == "" {
			continue
		}
		err := c.Client.AppsV1().Deployments(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Deployment %s/%s: %w", c.Namespace, name, err)
		}
	}
	// Pods on a node that does not respond cannot reach the API server either.
	left, err := c.await(ctx, min(stopTime, c.Deadline), func(ctx context.Context) ([]string, error) {
		return c.podsOf(ctx, "controller", "scheduler")
	})
	if len(left) > 0 {
		fmt.Fprintf(c.Out, "Not waiting any longer for pods to end: %s\n", first(left))
	}
	return err
}

// podsOf returns the names of some pods of components, one more than messages name.
func (c *Config) podsOf(ctx context.Context, components ...string) ([]string, error) {
	if c.Release == "" {
		return nil, nil
	}
	selector := fmt.Sprintf("%s=%s,%s in (%s)", instance, c.Release, component, strings.Join(components, ","))
	pods, err := c.find(ctx, podsKind, c.Namespace, labeled(selector), few+1)
	return namesOf(pods), err
}

func (c *Config) removePlugins(ctx context.Context) error {
	sets := c.Client.AppsV1().DaemonSets(c.Namespace)
	// In the foreground, so that the DaemonSet exists, and is being deleted, when its pods end.
	err := sets.Delete(ctx, c.DaemonSet, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete DaemonSet %s/%s: %w", c.Namespace, c.DaemonSet, err)
	}
	fmt.Fprintln(c.Out, "Waiting for the plugins to withdraw the GPUs of their nodes …")
	left, err := c.await(ctx, c.Deadline, func(ctx context.Context) ([]string, error) {
		if pods, err := c.podsOf(ctx, componentName); err != nil || len(pods) > 0 {
			return pods, err
		}
		published, err := c.find(ctx, slicesKind, metav1.NamespaceAll, published, 1)
		return namesOf(published), err
	})
	if err != nil {
		return err
	}
	clean := "and the nodes are clean. "
	if len(left) > 0 {
		if err := c.late(ctx); err != nil {
			return err
		}
		clean = "but not all nodes are clean. "
	}
	if err := c.refuseIfHeldMeanwhile(ctx); err != nil {
		return err
	}
	switch set, err := sets.Get(ctx, c.DaemonSet, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read DaemonSet %s/%s: %w", c.Namespace, c.DaemonSet, err)
	case set.DeletionTimestamp == nil:
		return fmt.Errorf("DaemonSet %s/%s was created again: turn off the tool that did it (automated sync of Argo CD, Flux), and repeat", c.Namespace, c.DaemonSet)
	}
	if c.Revision == 0 {
		clean += "Remove the remaining objects with the tool that installed them."
	}
	fmt.Fprintln(c.Out, "No plugin runs any more, "+strings.TrimSpace(clean))
	return nil
}

// late handles nodes whose plugin has not withdrawn their GPUs in time: it returns the reasons, or
// withdraws the GPUs if force is set.
func (c *Config) late(ctx context.Context) error {
	reasons, left, err := c.unfinished(ctx, true)
	if err != nil {
		return err
	}
	if !c.Force {
		return fmt.Errorf("some nodes have not withdrawn their GPUs within %s, so %w:\n%s"+
			"What to do:\n"+
			"  - bring these nodes back, or delete their Node objects if they are gone for good, and uninstall again\n"+
			"  - if a process uses a GPU of a node whose plugin has ended, end it, install Tranche again, and then uninstall it again\n%s",
			c.Deadline, ErrUnfinished, reasons, c.otherwise("uninstall anyway, and clean these nodes by hand (docs/admin/upgrade-and-uninstall.md)"))
	}
	fmt.Fprintf(c.Out, "%s is set, so what these nodes publish is deleted; their files must be removed by hand (docs/admin/upgrade-and-uninstall.md):\n%s", c.force(), reasons)
	err = c.Client.AppsV1().DaemonSets(c.Namespace).Delete(ctx, c.DaemonSet, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete DaemonSet %s/%s: %w", c.Namespace, c.DaemonSet, err)
	}
	return c.deleteFound(ctx, slicesKind, left)
}

// await polls until nothing is left or the time is up, less often the longer it takes. An error is that
// of the last poll, or of ctx.
func (c *Config) await(ctx context.Context, most time.Duration, look func(context.Context) (left []string, err error)) (left []string, err error) {
	began := time.Now()
	for {
		left, err = look(ctx)
		switch {
		case ctx.Err() != nil:
			return left, fmt.Errorf("wait until Tranche is removed: %w", ctx.Err())
		case err == nil && len(left) == 0 || time.Since(began) >= most:
			return left, err
		}
		if len(left) > 0 && c.Progress != nil {
			c.Progress("Waiting until these are gone: %s.", first(left))
		}
		_ = sleep.For(ctx, min(max(c.Look, time.Since(began)/8), longestInterval, most-time.Since(began))) // the loop ends with ctx
	}
}
