package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/uninstall"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// mostUninstalled is how many kilobytes an uninstallation may read for each node: its GPUNode
	// before and after the plugins withdraw, and names. Its slices alone, read whole at each look,
	// would be more.
	mostUninstalled = 25
	// uninstallDeadline is that of the chart's Job.
	uninstallDeadline = 2 * time.Minute
	// withdrawalTime is how long the plugins wait before they withdraw their slices.
	withdrawalTime = 20 * time.Second
	daemonSet      = controlplane.Release + "-kubelet-plugin"
)

// uninstallRun is what an uninstallation has cost.
type uninstallRun struct {
	read int64
	took time.Duration
}

func (s *scale) uninstallFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (*uninstallRun, error) { return s.runUninstall(ctx) })
	return []figures.Figure{{
		Name:  fmt.Sprintf("uninstalling %d nodes: read from the API server for each", s.nodes),
		Limit: figures.AtMost(mostUninstalled, "kB"),
		Measure: figures.From(run, func(r *uninstallRun) figures.Reading {
			return figures.Reading{Value: float64(r.read) / 1e3 / float64(s.nodes), Seen: fmt.Sprintf("%.1f MB in %s, of which the plugins took %s",
				float64(r.read)/1e6, r.took.Round(time.Second), withdrawalTime)}
		}),
	}}
}

// runUninstall starts the cluster with all its nodes, and does what the chart's Job does.
func (s *scale) runUninstall(ctx context.Context) (*uninstallRun, error) {
	c, err := s.up(ctx, "--api-only")
	if err != nil {
		return nil, err
	}
	defer s.launcher.Down(ctx)
	if err := s.launcher.InstallChart(ctx); err != nil {
		return nil, err
	}
	names := make([]string, s.nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
	}
	p := c.newPlugins(names)
	err = controlplane.ForAll(ctx, names, func(ctx context.Context, name string) error {
		if err := c.CreateNode(ctx, name); err != nil {
			return err
		}
		return errors.Join(p.begin(ctx, name), c.createPluginPod(ctx, name))
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- p.withdraw(ctx) }()
	r := &uninstallRun{}
	start := time.Now()
	if err := c.uninstall(ctx, &r.read); err != nil {
		return nil, err
	}
	r.took = time.Since(start)
	return r, <-withdrawn
}

// createPluginPod creates the pod of a node's plugin, which nobody runs.
func (c *cluster) createPluginPod(ctx context.Context, node string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-" + node, Labels: map[string]string{
			"app.kubernetes.io/component": "kubelet-plugin", "app.kubernetes.io/instance": controlplane.Release,
		}},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: daemonSet, Containers: []corev1.Container{{Name: "plugin", Image: "none"}}},
	}
	pods := c.Core.CoreV1().Pods(controlplane.Namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// withdraw deletes all slices and pods some time after the DaemonSet was deleted. No garbage
// collector runs.
func (p *plugins) withdraw(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		set, err := p.Core.AppsV1().DaemonSets(controlplane.Namespace).Get(ctx, daemonSet, metav1.GetOptions{})
		return err == nil && set.DeletionTimestamp != nil, nil
	})
	if err != nil {
		return err
	}
	if err := sleep.For(ctx, withdrawalTime); err != nil {
		return err
	}
	return controlplane.ForAll(ctx, p.names, func(ctx context.Context, name string) error {
		for _, s := range p.nodes[name].slices {
			if err := p.Core.ResourceV1().ResourceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return p.Core.CoreV1().Pods(controlplane.Namespace).Delete(ctx, "plugin-"+name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
}

// uninstall counts the bytes that it reads.
func (c *cluster) uninstall(ctx context.Context, read *int64) error {
	config := rest.CopyConfig(c.Config)
	config.QPS, config.Burst = 50, 100 // as of the Job
	config.DisableCompression = true
	var count atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counting{next: next, count: &count} })
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ours, err := client.New(config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	err = uninstall.Run(ctx, uninstall.Config{
		Client: core, Ours: ours, Objects: objects, Namespace: controlplane.Namespace, Release: controlplane.Release,
		DaemonSet: daemonSet, Deadline: uninstallDeadline, Out: os.Stderr,
	})
	*read = count.Load()
	return err
}

// counting counts the bytes of all answers.
type counting struct {
	next  http.RoundTripper
	count *atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err == nil {
		answer.Body = &countedBody{ReadCloser: answer.Body, count: c.count}
	}
	return answer, err
}

type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
}

func (b *countedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	b.count.Add(int64(n))
	return n, err
}
