package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

// The timing of WatchHealth. A GPU must be out of service 10 s after an error.
const (
	// waitFor is the timeout of one wait for events, and how long WatchHealth takes to
	// notice the end of its context.
	waitFor = 500 * time.Millisecond
	// waitPatience is when a wait counts as one that hangs.
	waitPatience = 10 * time.Second
	// gpuPatience is how long one look at all GPUs may take.
	gpuPatience = 3 * time.Second
	// lookEvery is the time between two looks for GPUs that are not watched.
	lookEvery = 10 * time.Second
	// sessionPause is the pause before a set of events is opened again.
	sessionPause = time.Second
	// shunFor is how long a GPU is not registered after it broke the set of events.
	shunFor = time.Minute
)

// WatchHealth implements hardware.Driver. It reports fatal and informative errors, not
// those of applications. A GPU that is lost, or that cannot be watched, is reported once.
// Reports come one at a time; report should be quick.
//
// It continues after a lost session and a reload of the driver, and watches GPUs that come
// back. Errors while no session is open are not reported: CheckHealth finds them. It returns
// nil when ctx ends, and an error if the library has no events at all.
func (d *Driver) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	return d.newWatcher(report).run(ctx)
}

func (d *Driver) newWatcher(report func(gpu.HealthEvent)) *watcher {
	return &watcher{
		d: d, report: report, gate: session.NewGate("NVML events"), lookEvery: lookEvery,
		said: map[string]string{}, energy: map[string]uint64{}, migOff: map[string]bool{}, shunned: map[string]time.Time{},
	}
}

func (w *watcher) run(ctx context.Context) error {
	complaint := ""
	for {
		err := w.session(ctx)
		switch {
		case session.Unsupported(err):
			return fmt.Errorf("watch for errors of the GPUs: %w", err)
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the session ended because ctx did
		case errors.Is(err, session.ErrLeaving):
			continue // the next session waits until the reset is over
		case err != nil && err.Error() != complaint:
			complaint = err.Error()
			w.d.cfg.Logger.Info("Watching for errors of the GPUs starts again", "reason", complaint)
		}
		_ = sleep.For(ctx, sessionPause) // the loop checks ctx
	}
}

type watcher struct {
	d      *Driver
	report func(gpu.HealthEvent)
	gate   *hardware.Gate
	// lookEvery is the constant, except in tests.
	lookEvery time.Duration
	// said is what was last reported of a GPU that is not watched.
	said map[string]string
	// energy is what each GPU had used at the last look, migOff whether its MIG mode was off.
	energy map[string]uint64
	migOff map[string]bool
	// shunned are GPUs that broke the set, and when.
	shunned map[string]time.Time
}

// watch is one set of events, with the GPUs registered in it.
type watch struct {
	*watcher
	set  nvml.EventSet
	load string
	gpus map[string]nvml.Device
	// stuck is set if a call hangs that may still use the set.
	stuck bool
}

// session watches with one set of events until it fails.
func (w *watcher) session(ctx context.Context) error {
	release, err := w.d.session.HoldSet(ctx)
	if err != nil {
		return err
	}
	defer release()
	set, err := inGate(ctx, w, "EventSetCreate", w.d.cfg.NVML.EventSetCreate)
	if errors.Is(err, nvml.ERROR_UNINITIALIZED) {
		if err = w.d.session.Open(ctx); err == nil {
			set, err = inGate(ctx, w, "EventSetCreate", w.d.cfg.NVML.EventSetCreate)
		}
	}
	if err != nil {
		return err
	}
	s := &watch{watcher: w, set: set, gpus: map[string]nvml.Device{}}
	s.load, _ = w.d.LoadID()
	defer s.free(ctx)

	var looked time.Time
	for ctx.Err() == nil {
		if w.d.session.Leaving() {
			return session.ErrLeaving
		}
		if time.Since(looked) >= w.lookEvery {
			if err := s.look(ctx); err != nil {
				return err
			}
			looked = time.Now()
		}
		event, err := inGate(ctx, w, "EventSetWait", func() (nvml.EventData, nvml.Return) {
			return set.Wait(uint32(waitFor.Milliseconds()))
		})
		switch {
		case err == nil:
			s.tell(ctx, event)
		case !errors.Is(err, nvml.ERROR_TIMEOUT):
			// Also for a lost GPU: NVML does not say which one, and every further
			// wait fails. The next set does not contain it.
			return err
		}
	}
	return nil
}

// inGate makes one call for the set of events. The end of ctx does not end it, because the
// set would be freed while the call uses it.
func inGate[T any](ctx context.Context, w *watcher, call string, f func() (T, nvml.Return)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitPatience)
	defer cancel()
	return session.Through(ctx, w.d.session, w.gate, func(t *session.Task) (T, error) { return session.Ask(t, call, f) })
}

func (s *watch) free(ctx context.Context) {
	if s.stuck {
		return // a set that is in use must not be freed
	}
	_, err := inGate(ctx, s.watcher, "EventSetFree", func() (struct{}, nvml.Return) { return struct{}{}, s.set.Free() })
	if err != nil {
		s.d.cfg.Logger.V(1).Info("A set of events could not be freed", "reason", err.Error())
	}
}

// glance is the result of a look at one GPU.
type glance struct {
	pciAddress string
	// device is set if this look registered the GPU.
	device nvml.Device
	migOff bool
	energy uint64
	// unwatched is why the GPU has no events.
	unwatched string
	err       error
}

// look registers the GPUs that are not watched yet, and reads the counters of the others.
// It looks at all GPUs at once: one that hangs delays the others by gpuPatience only.
func (s *watch) look(ctx context.Context) error {
	if load, err := s.d.LoadID(); err == nil && load != s.load {
		return errors.New("the driver was reloaded")
	}
	bounded, cancel := context.WithTimeout(ctx, gpuPatience)
	defer cancel()
	count, err := s.d.session.Count(bounded)
	if err != nil {
		return err
	}
	found := make([]glance, count)
	var wait sync.WaitGroup
	for index := range count {
		wait.Go(func() { found[index] = s.lookAt(bounded, index) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil
	}
	for _, g := range found {
		if err := s.note(g); err != nil {
			return err
		}
	}
	return nil
}

func (s *watch) lookAt(ctx context.Context, index int) glance {
	address, err := s.d.session.Address(ctx, index)
	if err != nil {
		return glance{pciAddress: s.d.session.AddressSeen(index), err: err}
	}
	if time.Since(s.shunned[address]) < shunFor {
		return glance{pciAddress: address}
	}
	registered := s.gpus[address] != nil
	g, err := onGPU(ctx, s.d, address, func(h *handle) (glance, error) {
		g := glance{pciAddress: address}
		var err error
		if g.energy, err = h.energy(); session.Lost(err) {
			return g, err
		}
		mode, err := h.Mode()
		g.migOff = err == nil && !mode.On
		if !registered {
			g.unwatched, err = h.register(s.set)
			g.device = h.Device
		}
		return g, err
	})
	g.pciAddress, g.err = address, err
	return g
}

// register adds the GPU's events to the set, or returns why it has none.
func (h *handle) register(set nvml.EventSet) (unwatched string, err error) {
	kinds, err := session.Ask(h.Task, "DeviceGetSupportedEventTypes", h.Device.GetSupportedEventTypes)
	if err == nil && kinds&xidEventTypes == 0 {
		return "it reports no errors", nil
	}
	if err == nil {
		err = session.Tell(h.Task, "DeviceRegisterEvents", func() nvml.Return { return h.Device.RegisterEvents(kinds&xidEventTypes, set) })
	}
	if session.Unsupported(err) {
		return err.Error(), nil
	}
	return "", err
}

// note keeps the result of a look, and reports what was not reported before.
func (s *watch) note(g glance) error {
	if g.energy > 0 {
		s.energy[g.pciAddress] = g.energy
	}
	s.migOff[g.pciAddress] = g.migOff
	switch {
	case g.err == nil && g.unwatched != "":
		s.sayOnce(g.pciAddress, "unwatched", gpu.HealthEvent{Message: fmt.Sprintf(
			"GPU %s cannot be watched for errors (%s); it is only asked from time to time", g.pciAddress, g.unwatched)})
	case g.err == nil && g.device != nil:
		s.gpus[g.pciAddress] = g.device
		delete(s.said, g.pciAddress)
	case session.Lost(g.err) && g.pciAddress != "":
		s.sayOnce(g.pciAddress, "lost", gpu.HealthEvent{Fatal: true, Cause: gpu.CauseLost, Message: g.err.Error()})
		if s.gpus[g.pciAddress] != nil {
			return g.err
		}
	case errors.Is(g.err, nvml.ERROR_UNKNOWN):
		// "Event set is in undefined state and should be freed" (nvml.h).
		s.shunned[g.pciAddress] = time.Now()
		return g.err
	case g.err != nil:
		var hangs *session.StuckError
		s.stuck = s.stuck || errors.As(g.err, &hangs)
		s.d.cfg.Logger.V(1).Info("GPU is not watched for errors now", "gpu", g.pciAddress, "reason", g.err.Error())
	}
	return nil
}

func (s *watch) sayOnce(pciAddress, what string, e gpu.HealthEvent) {
	if s.said[pciAddress] == what {
		return
	}
	s.said[pciAddress] = what
	s.send(pciAddress, e)
}

// send completes an event and reports it.
func (s *watch) send(pciAddress string, e gpu.HealthEvent) {
	e.PCIAddress, e.Energy = pciAddress, s.energy[pciAddress]
	e.LoadID, _ = s.d.LoadID()
	s.report(e)
}

// tell reports an event of the driver unless it concerns applications only.
func (s *watch) tell(ctx context.Context, event nvml.EventData) {
	number, ok := xidOf(event)
	if !ok {
		return
	}
	address, ok := s.addressOf(ctx, event.Device)
	if !ok {
		s.d.cfg.Logger.Info("The GPU of an error is not known", "xid", number)
		return
	}
	row := lookupXID(number)
	e := gpu.HealthEvent{XID: number, Cause: gpu.XIDCause(number), Fatal: row.class == xidFatal}
	// Without MIG some libraries say 0, although it should be noInstance.
	if event.GpuInstanceId != noInstance && (event.GpuInstanceId != 0 || !s.migOff[address]) {
		id := int(event.GpuInstanceId)
		e.GPUInstance = &id
	}
	e.Message = row.describe(address, number, e.GPUInstance)
	switch row.class {
	case xidApplication:
		s.d.cfg.Logger.V(2).Info("An application failed on a GPU", "gpu", address, "reason", e.Message)
		return
	case xidRuled:
		if !s.rule(ctx, address, &e) {
			return
		}
	}
	s.send(address, e)
}

// rule completes the event that the recovery action changed. It returns false if the driver
// requests no action any more.
func (s *watch) rule(ctx context.Context, address string, e *gpu.HealthEvent) bool {
	ctx, cancel := context.WithTimeout(ctx, gpuPatience)
	defer cancel()
	err := s.d.CheckHealth(ctx, address)
	if err == nil {
		return false
	}
	var recovery *recoveryError
	e.Fatal = session.Lost(err) || errors.As(err, &recovery)
	e.Message = fmt.Sprintf("%s: %v", e.Message, err)
	return true
}

// noInstance is the id in events without an instance (nvml.h).
const noInstance = 0xFFFFFFFF

// addressOf returns the GPU of an event: by its handle, which works for lost GPUs too, or by
// its answer.
func (s *watch) addressOf(ctx context.Context, device nvml.Device) (string, bool) {
	for address, known := range s.gpus {
		if known == device {
			return address, true
		}
	}
	info, err := inGate(ctx, s.watcher, "DeviceGetPciInfo", device.GetPciInfo)
	if err != nil {
		return "", false
	}
	address, err := session.AddressIn(info)
	return address, err == nil
}
