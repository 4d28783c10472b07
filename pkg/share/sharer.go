package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// GPUs sets how NVIDIA's GPUs are shared. *nvidia.Driver does.
type GPUs interface {
	// SetTimeSlice sets how long a process may run before it is another's turn. A
	// GPU that knows no such thing fails with gpu.ErrNotSupported.
	SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error
	// Settings reads how a GPU is set.
	Settings(ctx context.Context, pciAddress string) (gpu.Settings, error)
	// SetComputeMode sets it to one of the modes of gpu.Settings.
	SetComputeMode(ctx context.Context, pciAddress, mode string) error
}

// Daemons runs MPS daemons. *mps.Supervisor does, and says what the methods mean.
type Daemons interface {
	Start(ctx context.Context, spec mps.Spec) error
	Status(id string) mps.Status
	Wait(ctx context.Context, id string) error
	Stop(ctx context.Context, id string) error
	List() ([]string, error)
	PipeDir(id string) string
	ShmDir(id string) string
}

// Config is what a Sharer works with.
type Config struct {
	// GPUs sets NVIDIA's GPUs. Nil: there are none, or no driver.
	GPUs GPUs
	// Daemons runs MPS daemons. Nil: no MPS on this node.
	Daemons Daemons
	// NoMPS says why no MPS daemon works on this node, nil if one does. It may be nil
	// itself, when nobody tried.
	NoMPS func() error
}

// Sharer sets up shares. It implements claim.Sharer.
//
// Of a whole NVIDIA GPU the first share sets the time slice or the compute mode,
// and the last brings back what was. Where limits work, an MPS daemon keeps each
// holder to its memory: one for all shares of a claim that take turns with others,
// or, with the strategy MPS, one for all shares of a GPU. Shares of partitions and
// of AMD's GPUs are used side by side as they are.
type Sharer struct {
	cfg Config

	// mu protects slices.
	mu sync.Mutex
	// slices is which time slice this process has set on a GPU.
	slices map[string]slice
}

// slice is a time slice that was set under one load of the GPU's driver.
type slice struct {
	length gpu.TimeSlice
	loadID string
}

var _ claim.Sharer = (*Sharer)(nil)

// New makes a Sharer that has touched nothing.
func New(cfg Config) *Sharer { return &Sharer{cfg: cfg, slices: map[string]slice{}} }

// Settings implements claim.Sharer. The time slice is not among them: no driver
// tells which one is set.
func (s *Sharer) Settings(ctx context.Context, p gpu.Placement) (*gpu.Settings, error) {
	if !changesMode(p) {
		return nil, nil
	}
	if s.cfg.GPUs == nil {
		return nil, errNoDriver(p)
	}
	settings, err := s.cfg.GPUs.Settings(ctx, p.GPU)
	if err != nil {
		return nil, err
	}
	return &settings, nil
}

// Join implements claim.Sharer.
func (s *Sharer) Join(ctx context.Context, h claim.Holder) error {
	if err := s.check(h); err != nil {
		return err
	}
	if err := s.setGPU(ctx, h); err != nil {
		return err
	}
	id := s.Serves(h.Claim, h.Device)
	if id == "" {
		return nil
	}
	spec, err := specOf(h, id)
	if err != nil {
		return err
	}
	if err := s.cfg.Daemons.Start(ctx, spec); err != nil {
		return err
	}
	switch status := s.cfg.Daemons.Status(id); {
	case status.Ready:
		return nil
	case status.Err != nil:
		return status.Err
	}
	return &claim.NotReadyError{
		What: "MPS daemon " + id,
		Wait: func(ctx context.Context) error { return s.cfg.Daemons.Wait(ctx, id) },
	}
}

// Leave implements claim.Sharer. The daemon goes first: in the compute mode that
// the GPU comes back from, it would keep others off.
func (s *Sharer) Leave(ctx context.Context, h claim.Holder) error {
	last := len(h.Others) == 0
	if id := s.Serves(h.Claim, h.Device); id != "" && s.cfg.Daemons != nil && (last || id == string(h.Claim.UID)) {
		if err := s.cfg.Daemons.Stop(ctx, id); err != nil {
			return err
		}
	}
	if !last || !ofWholeGPU(h.Device.Placement) {
		return nil
	}
	return s.resetGPU(ctx, h)
}

// Running implements claim.Sharer.
func (s *Sharer) Running() ([]string, error) {
	if s.cfg.Daemons == nil {
		return nil, nil
	}
	return s.cfg.Daemons.List()
}

// Stop implements claim.Sharer.
func (s *Sharer) Stop(ctx context.Context, name string) error { return s.cfg.Daemons.Stop(ctx, name) }

// setGPU sets the GPU as its shares find it. Each share does so, since the one
// before may have died before it came to it.
func (s *Sharer) setGPU(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	if setsSlice(p) {
		return s.setSlice(ctx, h)
	}
	if !changesMode(p) {
		return nil
	}
	if s.cfg.GPUs == nil {
		return errNoDriver(p)
	}
	if h.Device.Before == nil {
		return fmt.Errorf("how GPU %s was set before is not known, so its compute mode is left alone; delete the pod so that it is scheduled again", p.GPUName())
	}
	return s.cfg.GPUs.SetComputeMode(ctx, p.GPU, gpu.ComputeExclusive)
}

// setSlice sets the time slice, unless this process has for a holder that is still
// there: it takes a program of NVIDIA's to do so.
func (s *Sharer) setSlice(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	if s.cfg.GPUs == nil {
		return errNoDriver(p)
	}
	now := slice{p.Share.TimeSlice, h.Device.LoadID}
	s.mu.Lock()
	done := len(h.Others) > 0 && s.slices[p.GPU] == now
	s.mu.Unlock()
	if done {
		return nil
	}
	err := s.cfg.GPUs.SetTimeSlice(ctx, p.GPU, p.Share.TimeSlice)
	if errors.Is(err, gpu.ErrNotSupported) {
		klog.FromContext(ctx).Info("The GPU takes turns of the length that its driver chooses, not of the one that is set for it", "gpu", p.GPUName(), "timeSlice", p.Share.TimeSlice, "reason", err.Error())
		err = nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slices[p.GPU] = now
	return nil
}

// resetGPU brings back how the GPU was before the first share. After a new load
// of its driver it is already.
func (s *Sharer) resetGPU(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	s.mu.Lock()
	delete(s.slices, p.GPU)
	s.mu.Unlock()
	if h.Lapsed || s.cfg.GPUs == nil {
		return nil
	}
	if setsSlice(p) && p.Share.TimeSlice != gpu.DefaultSlice {
		if err := s.cfg.GPUs.SetTimeSlice(ctx, p.GPU, gpu.DefaultSlice); err != nil && !errors.Is(err, gpu.ErrNotSupported) {
			return err
		}
	}
	if before := h.Device.Before; changesMode(p) && before != nil {
		// An empty mode was read by an earlier version while MIG was enabled. The
		// driver starts in the default mode.
		err := s.cfg.GPUs.SetComputeMode(ctx, p.GPU, cmp.Or(before.ComputeMode, gpu.ComputeDefault))
		if errors.Is(err, gpu.ErrNotSupported) {
			klog.FromContext(ctx).Info("The compute mode is not restored, because the GPU has none now", "gpu", p.GPUName(), "reason", err.Error())
			return nil
		}
		return err
	}
	return nil
}

// ofWholeGPU tells shares of whole GPUs from those of partitions, of which
// nothing is set.
func ofWholeGPU(p gpu.Placement) bool { return p.Share != nil && p.Share.Of == gpu.TypeGPU }

func setsSlice(p gpu.Placement) bool {
	return ofWholeGPU(p) && p.Share.Strategy == gpu.TimeSlicing && p.Share.TimeSlice != ""
}

func changesMode(p gpu.Placement) bool {
	return ofWholeGPU(p) && p.Share.Strategy == gpu.MPS && p.Share.ExclusiveProcess
}

func errNoDriver(p gpu.Placement) error {
	return fmt.Errorf("GPU %s cannot be set for sharing: NVIDIA's driver is not loaded", p.GPUName())
}

// isShare tells whether a device of a claim is one that it holds a share of.
func isShare(d ledger.Device) bool { return d.IsShare() && d.Amount != nil }
