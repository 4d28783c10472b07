package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tranche-dev/tranche/pkg/client"
)

const (
	chart = "deployments/helm/tranche"
	// namespace is the release's, and release the prefix of its objects' names.
	namespace = "tranche-system"
	release   = "tranche"
	// startPatience is how long a program that is started may take.
	startPatience = 5 * time.Minute
)

// cluster is one that runs, as an administrator sees it.
type cluster struct {
	*scale
	config  *rest.Config
	core    kubernetes.Interface
	tranche client.Interface
}

// up starts a cluster; down ends it.
func (s *scale) up(ctx context.Context, args ...string) (*cluster, error) {
	s.down(ctx) // what an earlier run may have left
	if err := s.command(ctx, s.launcher, append([]string{"up", "--dir", s.dir}, args...)...); err != nil {
		return nil, fmt.Errorf("start a cluster (make cluster-parts builds what it needs): %w", err)
	}
	c, err := s.connect()
	if err != nil {
		s.down(ctx)
	}
	return c, err
}

func (s *scale) connect() (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // what is measured must not wait for the measuring
	c := &cluster{scale: s, config: config}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	c.tranche, err = client.New(config)
	return c, err
}

// down ends the cluster, also where nobody waits any more.
func (s *scale) down(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := s.command(ctx, s.launcher, "down", "--dir", s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "The cluster could not be ended:", err)
	}
	if err := os.RemoveAll(s.own()); err != nil {
		fmt.Fprintln(os.Stderr, "The controller's files could not be removed:", err)
	}
}

// own is the folder for what is written beside the cluster's files: the controller's
// token and profiles, the chart's values.
func (s *scale) own(elements ...string) string {
	return filepath.Join(append([]string{s.dir, "scale"}, elements...)...)
}

func (s *scale) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// command runs a program, and shows what it said if it fails.
func (s *scale) command(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}

// helm runs the cluster's helm.
func (s *scale) helm(ctx context.Context, args ...string) error {
	return s.command(ctx, filepath.Join(s.dir, "bin", "helm"), args...)
}
