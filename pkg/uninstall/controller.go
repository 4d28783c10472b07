package uninstall

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/sleep"
)

// stopTime is how long the controller's pods have to end. They have 30 s themselves.
const stopTime = 45 * time.Second

// controllerPods select the controller's pods, as the chart labels them.
func (c *Config) controllerPods() string {
	return labels.Set{"app.kubernetes.io/component": "controller", "app.kubernetes.io/instance": c.Release}.String()
}

// stopController ends the controller, which would put back what is taken away. The
// function that it returns starts it again.
func (c *Config) stopController(ctx context.Context) (restart func(context.Context) error, err error) {
	restart = func(context.Context) error { return nil }
	if c.Controller == "" {
		return restart, nil
	}
	deployment, err := c.Client.AppsV1().Deployments(c.Namespace).Get(ctx, c.Controller, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return restart, nil
	}
	if err != nil {
		return restart, fmt.Errorf("read Deployment %s/%s: %w", c.Namespace, c.Controller, err)
	}
	if err := c.scaleController(ctx, 0); err != nil {
		return restart, err
	}
	restart = func(ctx context.Context) error { return c.scaleController(ctx, ptr.Deref(deployment.Spec.Replicas, 1)) }
	return restart, c.awaitControllerEnd(ctx)
}

func (c *Config) scaleController(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client.AppsV1().Deployments(c.Namespace).Patch(ctx, c.Controller, types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	if err != nil {
		return fmt.Errorf("scale Deployment %s/%s to %d pods: %w", c.Namespace, c.Controller, replicas, err)
	}
	return nil
}

// awaitControllerEnd waits until no controller runs. One on a node that does not answer
// is not waited for long: it does not reach the API server either.
func (c *Config) awaitControllerEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(stopTime, c.Deadline))
	defer cancel()
	ended, left, err := c.awaitPodsEnd(ctx, "controller", c.controllerPods())
	if err == nil && !ended {
		fmt.Fprintf(c.Out, "Not waiting any longer for pods of the controller to end: %s\n", strings.Join(left, ", "))
	}
	return err
}

// awaitPodsEnd waits until no pod of a program is left. If ctx ends before, ended is false,
// and left has the names of the pods.
func (c *Config) awaitPodsEnd(ctx context.Context, program, selector string) (ended bool, left []string, err error) {
	for ctx.Err() == nil {
		pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		switch {
		case err == nil && len(pods.Items) == 0:
			return true, nil, nil
		case err == nil:
			left = nil
			for i := range pods.Items {
				left = append(left, pods.Items[i].Name)
			}
			c.tell("Waiting for the end of the %s: %d pods are left.", program, len(left))
		case ctx.Err() == nil:
			return false, nil, fmt.Errorf("list the pods of the %s: %w", program, err)
		}
		_ = sleep.For(ctx, c.Look) // the loop ends with ctx
	}
	return false, left, nil
}
