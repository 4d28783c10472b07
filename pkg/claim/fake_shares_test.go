package claim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/stretchr/testify/assert"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// offerShares makes the GPUs of a node offer shares.
func (p *place) offerShares() *place {
	claims.OfferShares(p.hardware.gpus)
	p.shares = &fakeSharer{hardware: p.hardware, modes: map[string]string{}, joined: map[string]string{}, daemons: map[string]bool{}}
	return p
}

// fakeSharer keeps in memory what holders have, as it would be outside the plugin:
// it outlives one that is killed. It checks that it is called as Sharer says.
type fakeSharer struct {
	hardware *fakeHardware

	mu sync.Mutex
	// modes is how GPUs are set: "own" before the first share, "shared" after.
	modes map[string]string
	// joined has what the holders share, by claim and device.
	joined map[string]string
	// daemons tells of each daemon whether it is ready.
	daemons map[string]bool
	// mistakes are calls that must never come.
	mistakes []string

	onJoin, onLeave func(Holder) error
	onWait          func(context.Context) error
	onSettings      func() error
	// slow daemons are ready when somebody has waited for them.
	slow bool
}

func (s *fakeSharer) mode(gpuID string) string {
	if mode := s.modes[gpuID]; mode != "" {
		return mode
	}
	return "own"
}

func (s *fakeSharer) Settings(_ context.Context, p gpu.Placement) (*gpu.Settings, error) {
	if s.onSettings != nil {
		if err := s.onSettings(); err != nil {
			return nil, err
		}
	}
	if p.Share.Of != gpu.TypeGPU {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &gpu.Settings{ComputeMode: s.mode(p.GPU)}, nil
}

// placeOf is what a holder shares, under which load of its driver.
func placeOf(h Holder) string { return h.Device.Placement.Base().Name() + " " + h.Device.LoadID }

func (s *fakeSharer) key(h Holder) string { return string(h.Claim.UID) + " " + h.Device.Key() }

func (s *fakeSharer) Join(ctx context.Context, h Holder) error {
	if s.onJoin != nil {
		if err := s.onJoin(h); err != nil {
			return err
		}
	}
	p := h.Device.Placement
	live, _ := s.hardware.Live(ctx, p.GPU)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Device.UUID == "" || !steps.Exists(h.Device, live) {
		s.mistakes = append(s.mistakes, s.key(h)+" joins before its base is there")
	}
	s.joined[s.key(h)] = placeOf(h)
	name := s.Serves(h.Claim, h.Device)
	if name == "" {
		return nil
	}
	if h.Device.Before == nil || h.Device.Before.ComputeMode != "own" {
		s.mistakes = append(s.mistakes, s.key(h)+" does not know how the GPU was")
	}
	s.modes[p.GPU] = "shared"
	if !s.slow || s.daemons[name] {
		s.daemons[name] = true
		return nil
	}
	s.daemons[name] = false
	return &NotReadyError{What: "daemon " + name, Wait: func(ctx context.Context) error { return s.wait(ctx, name) }}
}

func (s *fakeSharer) wait(ctx context.Context, name string) error {
	s.mu.Lock()
	onWait := s.onWait
	s.mu.Unlock()
	if onWait != nil {
		if err := onWait(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.daemons[name]; !ok {
		return errors.New("there is no daemon " + name)
	}
	s.daemons[name] = true
	return nil
}

func (s *fakeSharer) Leave(_ context.Context, h Holder) error {
	if s.onLeave != nil {
		if err := s.onLeave(h); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.joined, s.key(h))
	delete(s.daemons, s.Serves(h.Claim, h.Device))
	if len(h.Others) > 0 {
		return nil
	}
	for key, base := range s.joined {
		if base == placeOf(h) && !h.Lapsed {
			s.mistakes = append(s.mistakes, s.key(h)+" leaves as the last one, beside "+key)
		}
	}
	if h.Device.Before != nil && !h.Lapsed {
		s.modes[h.Device.Placement.GPU] = h.Device.Before.ComputeMode
	}
	return nil
}

func (s *fakeSharer) Edits(_ context.Context, h Holder) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{
		Env:    []string{"SHARE=" + h.Device.Key()},
		Mounts: []*cdispecs.Mount{{HostPath: "/pipe", ContainerPath: "/pipe"}},
	}, nil
}

func (s *fakeSharer) Running() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.daemons)), nil
}

func (s *fakeSharer) Serves(claim ledger.ClaimRef, d ledger.Device) string {
	if d.Placement.Share == nil || !d.Placement.Share.Limits {
		return ""
	}
	return string(claim.UID)
}

func (s *fakeSharer) Stop(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemons, name)
	return nil
}

// holders lists who has joined, in order.
func (s *fakeSharer) holders() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.joined))
}

// nothingShared checks that no share, daemon or setting is left, and that the
// Sharer was called as it must be.
func (p *place) nothingShared(m *Manager) {
	p.t.Helper()
	p.nothingHeld(m)
	p.noMistakes()
	s := p.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(p.t, s.joined, "holders")
	assert.Empty(p.t, s.daemons, "daemons")
	for gpuID := range s.modes {
		assert.Equal(p.t, "own", s.mode(gpuID), "GPU %s is still set for sharing", gpuID)
	}
}

func (p *place) noMistakes() {
	p.t.Helper()
	p.shares.mu.Lock()
	defer p.shares.mu.Unlock()
	assert.Empty(p.t, p.shares.mistakes, "the Sharer was called as it must not be")
}
