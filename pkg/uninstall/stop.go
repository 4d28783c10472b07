package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// stopTime is how long the pods of the Deployments have to end. They have 30 s themselves.
const stopTime = 45 * time.Second

// deployment is a Deployment of the chart whose pods elect a leader.
type deployment struct {
	// name of the Deployment, and the Lease of its leader; empty: there is none.
	name, lease string
}

// deployments are those that can exist. The chart names the scheduler's Lease like its Deployment.
func (c *Config) deployments() []deployment {
	return []deployment{
		{name: c.Controller, lease: names.ControllerName},
		{name: c.Scheduler, lease: c.Scheduler},
	}
}

// stop ends the controller, which would put back what is taken away, and the second scheduler, which
// would create its Lease again. The function that it returns starts them again.
func (c *Config) stop(ctx context.Context) (restart func(context.Context) error, err error) {
	stopped := map[string]int32{}
	restart = func(ctx context.Context) error {
		var errs []error
		for name, replicas := range stopped {
			errs = append(errs, c.scale(ctx, name, replicas))
		}
		return errors.Join(errs...)
	}
	for _, d := range c.deployments() {
		if d.name == "" {
			continue
		}
		found, err := c.Client.AppsV1().Deployments(c.Namespace).Get(ctx, d.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return restart, fmt.Errorf("read Deployment %s/%s: %w", c.Namespace, d.name, err)
		}
		stopped[d.name] = ptr.Deref(found.Spec.Replicas, 1)
		if err := c.scale(ctx, d.name, 0); err != nil {
			return restart, err
		}
	}
	return restart, c.awaitEnd(ctx)
}

func (c *Config) scale(ctx context.Context, name string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client.AppsV1().Deployments(c.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	if err != nil {
		return fmt.Errorf("scale Deployment %s/%s to %d pods: %w", c.Namespace, name, replicas, err)
	}
	return nil
}

// awaitEnd waits until no pod of the Deployments is left. One on a node that does not answer is not
// waited for long: it does not reach the API server either.
func (c *Config) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(stopTime, c.Deadline))
	defer cancel()
	ended, left, err := c.awaitPodsEnd(ctx, "controller", "scheduler")
	if err == nil && !ended {
		fmt.Fprintf(c.Out, "Not waiting any longer for pods to end: %s\n", first(left))
	}
	return err
}

// awaitPodsEnd waits until no pod of these components is left. If ctx ends before, ended is false,
// and left has the first names.
func (c *Config) awaitPodsEnd(ctx context.Context, components ...string) (ended bool, left []string, err error) {
	selector := fmt.Sprintf("%s=%s,%s in (%s)", instance, c.Release, component, strings.Join(components, ","))
	for began := time.Now(); ctx.Err() == nil; {
		pods, err := c.find(ctx, podsKind, c.Namespace, labeled(selector), few+1)
		switch {
		case err == nil && len(pods) == 0:
			return true, nil, nil
		case err == nil:
			left = namesOf(pods)
			c.tell("Waiting until pods have ended: %s.", first(left))
		case ctx.Err() == nil:
			return false, nil, fmt.Errorf("find the pods of %s: %w", strings.Join(components, " and "), err)
		}
		_ = c.rest(ctx, began) // the loop ends with ctx
	}
	return false, left, nil
}

// deleteLeases deletes the Leases of the programs that have ended, or were there once. Nobody else
// does: they were created by pods, not by the chart.
func (c *Config) deleteLeases(ctx context.Context) error {
	var errs []error
	for _, d := range c.deployments() {
		if d.lease == "" {
			continue
		}
		err := c.Client.CoordinationV1().Leases(c.Namespace).Delete(ctx, d.lease, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Lease %s/%s: %w", c.Namespace, d.lease, err))
		}
	}
	return errors.Join(errs...)
}
