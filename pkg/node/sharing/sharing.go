package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/share/offer"
)

// Config is what says who holds shares, and who is told.
type Config struct {
	Events *telemetry.Events
	// Held lists the shares of a GPU that claims hold, or are getting.
	Held func(ctx context.Context, pciAddress string) ([]gpu.Placement, error)
	// HeldBy says who holds a GPU, for the end of a message.
	HeldBy func(pciAddress string) string
}

// State decides how the GPUs of the node are shared: as is wanted of them, from
// the moment on at which no claim holds a share of the GPU. What is in force is
// kept in a file, because a plugin that starts anew finds claims that hold shares,
// and settings that may have changed since.
type State struct {
	Config
	path string
	// told is what was said last of each GPU and subject, so that it is said once.
	// Only the goroutine that looks has it.
	told map[string]string

	// mu protects what follows, and the file.
	mu sync.Mutex
	// inForce is by PCI address.
	inForce map[string]profile.Desired
	// later is how a GPU is to be shared once no share of it is held, by its name.
	later map[string]string
}

// Open reads what was in force when the last plugin ended. A file that
// cannot be read is reported: the settings of today then hold for all GPUs but
// those of which shares are held, whose devices tell.
func Open(path string, c Config) (*State, error) {
	s := &State{Config: c, path: path, told: map[string]string{}, inForce: map[string]profile.Desired{}, later: map[string]string{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s.inForce)
	}
	if err != nil {
		s.inForce = map[string]profile.Desired{}
		return s, fmt.Errorf("read how the GPUs are shared from %s: %w", path, err)
	}
	return s, nil
}

// Of is how a GPU is shared.
func (s *State) Of(pciAddress string) profile.Desired {
	if s == nil {
		return profile.Default()
	}
	now, _ := s.LookUp(pciAddress)
	return now
}

// AddShares adds to GPUs that were found the devices by which they are shared.
// wanted says what is wanted of a GPU. It tells whether anything has changed.
func (s *State) AddShares(ctx context.Context, found []gpu.GPU, wanted func(*gpu.GPU) profile.Desired) (changed bool) {
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
		s.Events.Note(ctx, v1alpha1.EventSettingsApplied, fmt.Sprintf("The settings of %s are now: %s", strings.Join(applied[text], ", "), text))
	}
	for _, text := range slices.Sorted(maps.Keys(waiting)) {
		s.Events.Note(ctx, v1alpha1.EventSettingsWait, fmt.Sprintf("The settings of a GPU change when no claim holds a share of it any more. To be %s: %s", text, strings.Join(waiting[text], ". ")))
	}
	return changed
}

// decide says what holds for a GPU from now on, and what is to hold later, when
// nobody holds a share of it.
func (s *State) decide(ctx context.Context, g *gpu.GPU, before profile.Desired, known bool, want profile.Desired) (now profile.Desired, later string) {
	if known && apiequality.Semantic.DeepEqual(before, want) {
		return want, ""
	}
	held, err := s.Held(ctx, g.PCIAddress)
	switch {
	case err != nil && known:
		klog.FromContext(ctx).Error(err, "It cannot be told whether shares of a GPU are held, so its settings stay", "gpu", g.Name())
		return before, s.told[g.Name()+" waits"]
	case len(held) == 0:
		return want, ""
	case !known:
		return remembered(want, held), ""
	}
	return before, describe(want)
}

// remembered is how a GPU is shared of which only that is known which shares are
// held: as far as they tell, and beyond that as is wanted.
func remembered(want profile.Desired, held []gpu.Placement) profile.Desired {
	want.Sharing = held[0].Share.Sharing
	return want
}

func (s *State) add(ctx context.Context, g *gpu.GPU, now profile.Desired) {
	shares, err := offer.Devices(g, now, now.Limits)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.First(g.Name()+" refused", text) && err != nil {
		s.Events.Warn(ctx, v1alpha1.EventSharesNotPublished, text)
	}
	g.Placements = append(slices.Clip(g.Placements), shares...)
}

// Waiting is how a GPU is to be shared once no share of it is held, for people;
// empty: as it is.
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

// First tells whether a text is new about its subject.
func (s *State) First(subject, text string) bool {
	if s.told[subject] == text {
		return false
	}
	s.told[subject] = text
	return true
}

// LookUp is how a GPU is shared, and whether that is known.
func (s *State) LookUp(pciAddress string) (profile.Desired, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := s.inForce[pciAddress]
	return now, known
}

func (s *State) set(pciAddress string, now profile.Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce[pciAddress] = now
}

// save writes the file. If it cannot, the settings are still in force in this run.
func (s *State) save(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s.inForce)
	if err == nil {
		err = durable.WriteFile(s.path, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "How the GPUs are shared could not be written down; a plugin that starts while shares are held goes by these", "file", s.path)
	}
}

// alike tells whether people would see no difference between two ways of sharing. To
// which profile a node comes is for the controller to tell.
func alike(a, b profile.Desired) bool {
	a.Profile, b.Profile = "", ""
	return describe(a) == describe(b)
}

// describe says how a GPU is shared, for people.
func describe(c profile.Desired) string {
	var what []string
	if c.Shared {
		what = append(what, "the whole GPU")
	}
	if len(c.Partitions) > 0 {
		what = append(what, "partitions "+strings.Join(c.Partitions, ", "))
	}
	parts := []string{"not shared"}
	if len(what) > 0 {
		parts = []string{
			strings.Join(what, " and ") + " shared by " + string(c.Strategy),
			fmt.Sprintf("%d replicas", c.Replicas), fmt.Sprintf("at most %d clients", c.MaxClients),
		}
		if c.TimeSlice != "" {
			parts = append(parts, "time slices "+string(c.TimeSlice))
		}
		if c.Limits {
			parts = append(parts, "memory of whole GPUs limited by MPS")
		}
	}
	switch c.Legacy.Kind {
	case profile.LegacyReplica:
		parts = append(parts, "the vendor's old resource is a replica")
	case profile.LegacyPartition:
		parts = append(parts, "the vendor's old resource is a partition "+c.Legacy.Profile)
	}
	text := strings.Join(parts, ", ")
	if c.Profile != "" {
		text += " (profile " + c.Profile + ")"
	}
	return text
}
