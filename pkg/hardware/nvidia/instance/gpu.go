package instance

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// GPU is one GPU during one task.
type GPU struct {
	*session.GPU
	// known are the GPU's profiles, once read.
	known []mig.Profile
}

// On returns the GPU of a task.
func On(g *session.GPU) *GPU { return &GPU{GPU: g} }

// onGPU runs f for one GPU, alone.
func onGPU[T any](ctx context.Context, s *session.Session, pciAddress string, f func(*GPU) (T, error)) (T, error) {
	return session.OnGPU(ctx, s, pciAddress, func(g *session.GPU) (T, error) { return f(On(g)) })
}

// undoing is session.GPU.Undoing.
func (g *GPU) undoing() *GPU {
	u := *g
	u.GPU = g.Undoing()
	return &u
}
