package share

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// Runner runs MPS daemons. *mps.Supervisor documents the methods.
type Runner interface {
	Start(ctx context.Context, spec mps.Spec) error
	Status(id string) mps.Status
	Wait(ctx context.Context, id string) error
	Stop(ctx context.Context, id string) error
	List() ([]string, error)
	PipeDir(id string) string
	ShmDir(id string) string
}

// Config has what a Sharer works with.
type Config struct {
	// Driver returns the driver of a GPU.
	Driver hardware.Lookup
	// Daemons returns what runs MPS daemons with the current driver. Nil: MPS is not available.
	Daemons func() Runner
	// NoMPS says why MPS daemons do not work on this node, nil if they do. The function may
	// be nil.
	NoMPS func() error
	// HookFolder is the folder of the plugin, by the same path here and on the host. It has the
	// program hook.Program.
	HookFolder string
}

// Sharer sets up shares. It implements claim.Sharer.
//
// The first share of a whole NVIDIA GPU sets the time slice or the compute mode, and the last
// one restores it. If the share has limits, an MPS daemon enforces them: with time-slicing, one
// daemon for all shares of a claim; with the strategy MPS, one for all shares of a GPU. Where the
// kernel driver limits memory, a hook sets the limit when a container starts (Limiter). Shares of
// partitions and of AMD's GPUs need no setup.
type Sharer struct {
	cfg Config

	// mu protects slices.
	mu sync.Mutex
	// slices has the time slices that this process has set, by GPU.
	slices map[string]slice
}

// slice is a time slice, and the load of the GPU's driver when it was set.
type slice struct {
	length gpu.TimeSlice
	loadID string
}

var _ claim.Sharer = (*Sharer)(nil)

// New returns a Sharer. It changes nothing yet.
func New(cfg Config) *Sharer { return &Sharer{cfg: cfg, slices: map[string]slice{}} }

// Settings implements claim.Sharer. The time slice is not part of the settings, because no driver
// can read it.
func (s *Sharer) Settings(ctx context.Context, p gpu.Placement) (*gpu.Settings, error) {
	if !changesMode(p) {
		return nil, nil
	}
	driver, err := s.cfg.Driver(p.GPU)
	if err != nil {
		return nil, err
	}
	settings, err := driver.Settings(ctx, p.GPU)
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
	if err := s.cfg.Daemons().Start(ctx, spec); err != nil {
		return err
	}
	switch status := s.cfg.Daemons().Status(id); {
	case status.Ready:
		return nil
	case status.Err != nil:
		return status.Err
	}
	return &claim.NotReadyError{
		What: "MPS daemon " + id,
		Wait: func(ctx context.Context) error { return s.cfg.Daemons().Wait(ctx, id) },
	}
}

// Leave implements claim.Sharer. It stops the daemon before it restores the compute mode.
func (s *Sharer) Leave(ctx context.Context, h claim.Holder) error {
	last := len(h.Others) == 0
	if id := s.Serves(h.Claim, h.Device); id != "" && s.cfg.Daemons != nil && (last || id == string(h.Claim.UID)) {
		if err := s.cfg.Daemons().Stop(ctx, id); err != nil {
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
	return s.cfg.Daemons().List()
}

// Stop implements claim.Sharer.
func (s *Sharer) Stop(ctx context.Context, name string) error { return s.cfg.Daemons().Stop(ctx, name) }

// setGPU changes the settings of the GPU. Every share does that, because preparing an earlier
// one may have been interrupted.
func (s *Sharer) setGPU(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	if setsSlice(p) {
		return s.setSlice(ctx, h)
	}
	if !changesMode(p) {
		return nil
	}
	if h.Device.Before == nil {
		return fmt.Errorf("the previous settings of GPU %s are not known, so its compute mode is not changed; delete the pod so that it is scheduled again", p.GPUName())
	}
	driver, err := s.cfg.Driver(p.GPU)
	if err != nil {
		return err
	}
	return driver.SetComputeMode(ctx, p.GPU, gpu.ComputeExclusive)
}

// setSlice sets the time slice, unless this process has done so for another current share: it
// runs a program of NVIDIA's driver.
func (s *Sharer) setSlice(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	now := slice{p.Share.TimeSlice, h.Device.LoadID}
	s.mu.Lock()
	done := len(h.Others) > 0 && s.slices[p.GPU] == now
	s.mu.Unlock()
	if done {
		return nil
	}
	driver, err := s.cfg.Driver(p.GPU)
	if err != nil {
		return err
	}
	err = driver.SetTimeSlice(ctx, p.GPU, p.Share.TimeSlice)
	if errors.Is(err, gpu.ErrNotSupported) {
		klog.FromContext(ctx).Info("The GPU does not support time slices, so its driver chooses their length", "gpu", p.GPUName(), "timeSlice", p.Share.TimeSlice, "reason", err.Error())
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

// resetGPU restores the settings of the GPU from before the first share. Reloading the driver
// has the same effect.
func (s *Sharer) resetGPU(ctx context.Context, h claim.Holder) error {
	p := h.Device.Placement
	s.mu.Lock()
	delete(s.slices, p.GPU)
	s.mu.Unlock()
	before := h.Device.Before
	setsSlice, setsMode := setsSlice(p) && p.Share.TimeSlice != gpu.DefaultSlice, changesMode(p) && before != nil
	if h.Lapsed || !setsSlice && !setsMode {
		return nil
	}
	driver, err := s.cfg.Driver(p.GPU)
	if err != nil {
		return err
	}
	if setsSlice {
		if err := driver.SetTimeSlice(ctx, p.GPU, gpu.DefaultSlice); err != nil && !errors.Is(err, gpu.ErrNotSupported) {
			return err
		}
	}
	if setsMode {
		err := driver.SetComputeMode(ctx, p.GPU, before.ComputeMode)
		if errors.Is(err, gpu.ErrNotSupported) {
			klog.FromContext(ctx).Info("The compute mode is not restored, because the GPU has none now", "gpu", p.GPUName(), "reason", err.Error())
			return nil
		}
		return err
	}
	return nil
}

// ofWholeGPU reports whether a placement is a share of a whole GPU. Shares of partitions need no
// settings.
func ofWholeGPU(p gpu.Placement) bool { return p.Share != nil && p.Share.Of == gpu.TypeGPU }

func setsSlice(p gpu.Placement) bool {
	return ofWholeGPU(p) && p.Share.Strategy == gpu.TimeSlicing && p.Share.TimeSlice != ""
}

func changesMode(p gpu.Placement) bool {
	return ofWholeGPU(p) && p.Share.Strategy == gpu.MPS && p.Share.ExclusiveProcess
}
