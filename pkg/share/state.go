package share

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// StateConfig has what a State works with.
type StateConfig struct {
	Events *telemetry.Events
	// Held lists the shares of a GPU that claims hold, or are getting.
	Held func(ctx context.Context, pciAddress string) ([]gpu.Placement, error)
	// HeldBy names the holders of a GPU, for the end of a message.
	HeldBy func(pciAddress string) string
}

// State has the settings of sharing that are in force for each GPU. New settings apply to a GPU
// when no claim holds a share of it. They are kept in a file: when the plugin restarts, claims
// may hold shares, and the desired settings may have changed.
type State struct {
	StateConfig
	// told has the last message by GPU and subject, so that each is reported once. Only the
	// goroutine that checks the GPUs uses it.
	told map[string]string

	// mu protects the fields below.
	mu   sync.Mutex
	file durable.State[stateFile]
	// inForce is by PCI address.
	inForce map[string]settings
	// later describes the settings that wait for a release, by the name of the GPU.
	later map[string]string
}

type stateFile struct {
	// GPUs are the settings that are in force, by PCI address.
	GPUs map[string]settings `json:"gpus"`
}

var stateFormat = durable.Format{Version: 1, MinReader: 1}

type settings struct {
	profile.Desired
	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// UnmarshalJSON keeps the keys of a newer version.
func (s *settings) UnmarshalJSON(data []byte) (err error) {
	type plain settings
	s.unknown, err = durable.Unmarshal(data, (*plain)(s))
	return err
}

// MarshalJSON adds the keys of a newer version.
func (s settings) MarshalJSON() ([]byte, error) {
	type plain settings
	return durable.Marshal(plain(s), s.unknown)
}

// OpenState reads the settings that were in force when the last plugin ended. If that fails, it returns
// the error and a State that takes the settings of held shares from the ledger. AddShares tries again
// to read a file that is not broken.
func OpenState(path string, c StateConfig) (*State, error) {
	s := &State{
		StateConfig: c, file: durable.State[stateFile]{Path: path, Format: stateFormat},
		told: map[string]string{}, inForce: map[string]settings{}, later: map[string]string{},
	}
	_, err := s.read()
	return s, err
}

// read reads the file if that has not been possible so far, and reports whether it has done so now.
func (s *State) read() (read bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.file.Unread() {
		return false, nil
	}
	known, err := s.file.Read()
	if err != nil {
		return false, fmt.Errorf("read how the GPUs are shared from %s: %w", s.file.Path, err)
	}
	maps.Copy(s.inForce, known.GPUs)
	return true, nil
}

// Of returns the settings of a GPU.
func (s *State) Of(pciAddress string) profile.Desired {
	if s == nil {
		return profile.Default()
	}
	now, _ := s.LookUp(pciAddress)
	return now
}

// AddShares adds their share devices to GPUs that were found. wanted returns the desired state
// of a GPU. AddShares reports whether settings have changed.
func (s *State) AddShares(ctx context.Context, found []gpu.GPU, wanted func(*gpu.GPU) profile.Desired) (changed bool) {
	changed, err := s.read()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Newer settings may apply although claims hold shares")
	}
	applied, waiting := map[string][]string{}, map[string][]string{}
	for i := range found {
		g := &found[i]
		before, known := s.LookUp(g.PCIAddress)
		now, later := s.decide(ctx, g, before, known, wanted(g))
		if !known || !apiequality.Semantic.DeepEqual(before, now) {
			changed = true
			s.set(g.PCIAddress, now)
			if known && !alike(before, now) || !known && now.Profile != "" {
				text := describe(now)
				applied[text] = append(applied[text], g.Name())
			}
		}
		s.setWaiting(g.Name(), later)
		if s.First(g.Name()+" waits", later) && later != "" {
			waiting[later] = append(waiting[later], g.Name()+s.HeldBy(g.PCIAddress))
		}
		s.add(ctx, g, now)
	}
	if changed {
		s.save(ctx)
	}
	for _, text := range slices.Sorted(maps.Keys(applied)) {
		s.Events.Note(ctx, names.EventSettingsApplied, fmt.Sprintf("The settings of %s are now: %s", strings.Join(applied[text], ", "), text))
	}
	for _, text := range slices.Sorted(maps.Keys(waiting)) {
		s.Events.Note(ctx, names.EventSettingsPending, fmt.Sprintf("The settings of a GPU change when no claim holds a share of it. Settings to come, %s: %s", text, strings.Join(waiting[text], ". ")))
	}
	return changed
}

// decide returns the settings of a GPU, and describes those that wait until no claim holds a
// share of it.
func (s *State) decide(ctx context.Context, g *gpu.GPU, before profile.Desired, known bool, want profile.Desired) (now profile.Desired, later string) {
	if known && apiequality.Semantic.DeepEqual(before, want) {
		return want, ""
	}
	held, err := s.Held(ctx, g.PCIAddress)
	switch {
	case err != nil && known:
		klog.FromContext(ctx).Error(err, "Cannot read which claims hold shares of a GPU, so its settings stay", "gpu", g.Name())
		return before, s.told[g.Name()+" waits"]
	case len(held) == 0:
		return want, ""
	case !known:
		return remembered(want, held), ""
	}
	return before, describe(want)
}

// remembered returns the settings of a GPU whose settings are lost: those of the held shares,
// otherwise the desired ones.
func remembered(want profile.Desired, held []gpu.Placement) profile.Desired {
	want.Sharing = held[0].Share.Sharing
	return want
}

func (s *State) add(ctx context.Context, g *gpu.GPU, now profile.Desired) {
	shares, err := now.ShareDevices(g, now.Limits)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.First(g.Name()+" refused", text) && err != nil {
		s.Events.Warn(ctx, names.EventSharesNotPublished, text)
	}
	g.Placements = append(slices.Clip(g.Placements), shares...)
}

// Waiting describes the settings that a GPU gets once no claim holds a share of it; empty: none.
func (s *State) Waiting(gpuID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.later[gpuID]
}

func (s *State) setWaiting(gpuID, later string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later[gpuID] = later
}

// First reports whether a text is new about its subject.
func (s *State) First(subject, text string) bool {
	if s.told[subject] == text {
		return false
	}
	s.told[subject] = text
	return true
}

// LookUp returns the settings of a GPU, and whether they are known.
func (s *State) LookUp(pciAddress string) (profile.Desired, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := s.inForce[pciAddress]
	return now.Desired, known
}

func (s *State) set(pciAddress string, now profile.Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce[pciAddress] = settings{Desired: now}
}

// save writes the file. If that fails, the settings are still in force until the plugin ends.
func (s *State) save(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.file.Write(stateFile{GPUs: s.inForce}); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the settings of sharing; after a restart, they are taken from held shares", "file", s.file.Path)
	}
}

// alike reports whether two settings have the same description, except for the profile, which the
// controller reports.
func alike(a, b profile.Desired) bool {
	a.Profile, b.Profile = "", ""
	return describe(a) == describe(b)
}

func describe(c profile.Desired) string {
	var what []string
	if c.Shared {
		what = append(what, "the whole GPU")
	}
	var partitions, replicas []string
	for _, p := range c.SharedPartitions() {
		partitions = append(partitions, p.Profile)
		if p.Replicas != c.Replicas {
			replicas = append(replicas, fmt.Sprintf("%d replicas of %s", p.Replicas, p.Profile))
		}
	}
	if len(partitions) > 0 {
		what = append(what, "partitions "+strings.Join(partitions, ", "))
	}
	parts := []string{"not shared"}
	if len(what) > 0 {
		parts = []string{
			strings.Join(what, " and ") + " shared by " + string(c.Strategy),
			fmt.Sprintf("%d replicas", c.Replicas), fmt.Sprintf("at most %d clients", c.MaxClients),
		}
		parts = append(parts, replicas...)
		if c.TimeSlice != "" {
			parts = append(parts, "time slices "+string(c.TimeSlice))
		}
		if c.Burst() {
			parts = append(parts, fmt.Sprintf("memory limits up to %d %% of requests", c.MaxMemoryLimitPercent))
		}
		switch {
		case c.KernelLimits:
			parts = append(parts, "memory of whole GPUs limited by the kernel driver")
		case c.Limits:
			parts = append(parts, "memory of whole GPUs limited by MPS")
		}
	}
	if meaning := c.ExtendedResourceText(); meaning != profile.Default().ExtendedResourceText() {
		parts = append(parts, "the vendor's extended resource is "+meaning)
	}
	if c.MIGReplicas {
		parts = append(parts, "nvidia.com/mig-<profile> is a replica")
	}
	text := strings.Join(parts, ", ")
	if c.Profile != "" {
		text += " (profile " + c.Profile + ")"
	}
	return text
}
