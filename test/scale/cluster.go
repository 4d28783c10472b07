package main

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// cluster is one that runs, as an administrator sees it.
type cluster struct {
	*scale
	*controlplane.Cluster
	tranche client.Interface
}

// up starts a cluster; s.launcher.Down ends it.
func (s *scale) up(ctx context.Context, args ...string) (*cluster, error) {
	c, err := s.launcher.Up(ctx, args...)
	if err != nil {
		return nil, err
	}
	tranche, err := client.New(c.Config)
	if err != nil {
		s.launcher.Down(ctx)
		return nil, err
	}
	return &cluster{scale: s, Cluster: c, tranche: tranche}, nil
}
