package inventory

import (
	"slices"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Step says what could not be done for a device, and so which devices need the same.
type Step string

const (
	// StepMode is a change of the GPU's mode, which all devices of the mode need.
	StepMode Step = "mode"
	// StepCreate is the creation of a device. Devices of the same profile need the same; if
	// several profiles of a mode fail, all of the mode do.
	StepCreate Step = "create"
	// StepShare is what only shares of a device need: settings of the GPU, a daemon.
	StepShare Step = "share"
	// StepClaim is what all devices of the node need: files of claims.
	StepClaim Step = "claim"
)

// lastRetry is the longest pause between two tries of a failed device.
const lastRetry = 5 * time.Minute

// Failure is a device that could not be prepared although nothing was wrong with the claim.
type Failure struct {
	Step Step
	gpu.Placement
	Reason string
	// pause is the time between the last try and next.
	pause time.Duration
	next  time.Time
}

// Failures are the devices that could not be prepared and have not been since. It is safe for
// concurrent use.
type Failures struct {
	// FirstRetry is the pause after the first failure. It doubles with each further one.
	FirstRetry time.Duration

	// mu protects known.
	mu    sync.Mutex
	known []Failure
}

// Failed records a failure. The reason of an earlier one stays, so that it is reported once.
func (f *Failures) Failed(step Step, p gpu.Placement, reason string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.known, func(k Failure) bool { return k.Step == step && k.Name() == p.Name() })
	if i < 0 {
		f.known = append(f.known, Failure{Step: step, Placement: p, Reason: reason})
		i = len(f.known) - 1
	}
	k := &f.known[i]
	k.pause = min(max(2*k.pause, f.FirstRetry), lastRetry)
	k.next = now.Add(k.pause)
}

// Worked records that a device was prepared. It removes the failures for which the device needs
// the same.
func (f *Failures) Worked(p gpu.Placement) {
	f.remove(func(k *Failure) bool { return k.isFor(p) })
}

// Forget removes a failure.
func (f *Failures) Forget(failure Failure) {
	f.remove(func(k *Failure) bool { return k.Step == failure.Step && k.Name() == failure.Name() })
}

func (f *Failures) remove(which func(*Failure) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = slices.DeleteFunc(f.known, func(k Failure) bool { return which(&k) })
}

// Due returns the failures to try again now.
func (f *Failures) Due(now time.Time) []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.known), func(k Failure) bool { return now.Before(k.next) })
}

// Postpone puts off a try that was not possible.
func (f *Failures) Postpone(failure Failure, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.known {
		if k := &f.known[i]; k.Step == failure.Step && k.Name() == failure.Name() {
			k.next = now.Add(k.pause)
		}
	}
}

// On returns the devices of a GPU that need what failed. A GPU or partition stands for its shares,
// too.
func (f *Failures) On(g *gpu.GPU) []gpu.Obstacle {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []gpu.Obstacle
	seen := map[string]bool{}
	for _, p := range g.Placements {
		for i := range f.known {
			k := &f.known[i]
			if !k.isFor(p) && !f.modeFails(k, p) {
				continue
			}
			name := p.Base().Name()
			if k.Step == StepShare {
				name = p.Name()
			}
			if !seen[name] {
				seen[name] = true
				all = append(all, gpu.Obstacle{Placement: name, Kind: k.kind(), Reason: k.Reason})
			}
			break
		}
	}
	return all
}

func (k *Failure) kind() gpu.ObstacleKind {
	if k.Step == StepMode {
		return gpu.ObstacleBusy
	}
	return gpu.ObstacleFailed
}

// isFor reports whether a device needs what failed.
func (k *Failure) isFor(p gpu.Placement) bool {
	switch k.Step {
	case StepClaim:
		return true
	case StepShare:
		return p.Share != nil && p.Base().Name() == k.Base().Name()
	case StepMode:
		return sameMode(p.Base(), k.Base())
	}
	return sameMode(p.Base(), k.Base()) && p.Profile == k.Profile
}

// modeFails reports whether a failure is one of several profiles of a device's mode. The caller
// holds the lock.
func (f *Failures) modeFails(k *Failure, p gpu.Placement) bool {
	return k.Step == StepCreate && sameMode(p.Base(), k.Base()) && slices.ContainsFunc(f.known, func(o Failure) bool {
		return o.Step == StepCreate && sameMode(o.Base(), k.Base()) && o.Profile != k.Profile
	})
}

// sameMode reports whether two devices need the same mode of the same GPU.
func sameMode(p, q gpu.Placement) bool {
	return p.GPU == q.GPU && p.Type == q.Type && (!p.Type.FollowsMode() || p.Profile == q.Profile)
}
