package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// journalFormat is the format of the file.
var journalFormat = durable.Format{Version: 1, MinReader: 1}

// brokenSuffix is appended to the name of a file that cannot be read.
const brokenSuffix = ".broken"

// journal is what is applied, and what is about to change. It is written before the
// hardware is changed, so that partitions that are found later can be recognized. Files
// exist on nodes: the JSON keys do not change.
type journal struct {
	// Applied is the applied profile.
	Applied resolvedProfile `json:"applied"`
	// Applying is the profile that is being applied, or whose application failed. Some
	// GPUs may differ from Applied then.
	Applying *resolvedProfile `json:"applying,omitempty"`
	// Layouts are the current layouts of the GPUs, by PCI address: those of Applied, or of
	// Applying for GPUs that are done.
	Layouts map[string]profile.Layout `json:"layouts,omitempty"`
	// Before are the modes that the GPUs had before Applying began. A GPU that stopped
	// answering meanwhile keeps its entry.
	Before map[string]gpu.Modes `json:"modesBefore,omitempty"`
	// Ours are the placements of static partitions that were created, or were about to be,
	// on GPUs that are not done.
	Ours map[string][]gpu.Placement `json:"ownPlacements,omitempty"`
	// Previous is the profile that was applied before Applied. The controller may roll back
	// to it after Applied is complete.
	Previous *previous `json:"previous,omitempty"`
	// Step describes the last step that began, for people.
	Step string `json:"step,omitempty"`

	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// resolvedProfile is a profile with the layouts that it was resolved to on this node's
// GPUs, by PCI address. Static partitions keep their positions.
type resolvedProfile struct {
	Snapshot v1beta1.ProfileSnapshot   `json:"profile"`
	Layouts  map[string]profile.Layout `json:"layouts,omitempty"`
	// Vendors are the vendors of the GPUs, sorted.
	Vendors []gpu.Vendor `json:"vendors,omitempty"`

	// unchanged are the GPUs that the profile leaves as they are when it is applied for the
	// first time. Later, they keep Layouts.
	unchanged []string
	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// UnmarshalJSON keeps the keys of a newer version.
func (r *resolvedProfile) UnmarshalJSON(data []byte) (err error) {
	type plain resolvedProfile
	r.unknown, err = durable.Unmarshal(data, (*plain)(r))
	return err
}

// MarshalJSON adds the keys of a newer version.
func (r resolvedProfile) MarshalJSON() ([]byte, error) {
	type plain resolvedProfile
	return durable.Marshal(plain(r), r.unknown)
}

// previous is a profile that was applied, and the modes that the GPUs had then.
type previous struct {
	Applied resolvedProfile      `json:"applied"`
	Before  map[string]gpu.Modes `json:"modesBefore,omitempty"`
}

func (in journal) reopen() journal {
	given := in.Applied
	in.Applied, in.Applying, in.Before, in.Previous = in.Previous.Applied, &given, in.Previous.Before, nil
	return in
}

// clone returns a copy whose maps can be changed.
func (in journal) clone() journal {
	in.Layouts, in.Before, in.Ours = maps.Clone(in.Layouts), maps.Clone(in.Before), maps.Clone(in.Ours)
	return in
}

// ours are the placements of a GPU that may have static partitions.
func (in *journal) ours(gpuID string) []gpu.Placement {
	return union(in.Layouts[gpuID].Static, in.Ours[gpuID])
}

func union(a, b []gpu.Placement) []gpu.Placement {
	return lists.UnionFunc(slices.Clone(a), func(p, q gpu.Placement) bool { return p.Name() == q.Name() }, b...)
}

// begin returns the journal when the application of a profile begins.
func (in journal) begin(to resolvedProfile, now map[string]gpu.Modes) journal {
	in = in.clone()
	if in.Before == nil {
		in.Before = map[string]gpu.Modes{}
	}
	if in.Ours == nil {
		in.Ours = map[string][]gpu.Placement{}
	}
	for gpuID, modes := range now {
		// An earlier attempt may have changed the GPU already.
		if _, ok := in.Before[gpuID]; !ok || in.Applying == nil {
			in.Before[gpuID] = modes
		}
	}
	for gpuID, layout := range to.Layouts {
		if all := union(in.Ours[gpuID], layout.Static); len(all) > 0 {
			in.Ours[gpuID] = all
		}
	}
	if in.Applying != nil {
		// Vendors whose GPUs were missing at an earlier attempt are still expected.
		to.Vendors = slices.Compact(slices.Sorted(slices.Values(slices.Concat(to.Vendors, in.Applying.Vendors))))
	}
	in.Applying = &to
	return in
}

func (in journal) done(gpuID string, layout profile.Layout) journal {
	in = in.clone()
	if in.Layouts == nil {
		in.Layouts = map[string]profile.Layout{}
	}
	in.Layouts[gpuID] = layout
	return in.settle(gpuID)
}

// settle returns the journal when nothing is left to do on a GPU.
func (in journal) settle(gpuID string) journal {
	in = in.clone()
	delete(in.Ours, gpuID)
	if in.Applying == nil {
		delete(in.Before, gpuID)
	}
	if len(in.Ours) == 0 {
		in.Ours = nil
	}
	if len(in.Before) == 0 {
		in.Before = nil
	}
	return in
}

// unsettled reports whether the journal has entries for an unfinished change of a GPU.
func (in *journal) unsettled(gpuID string) bool {
	_, before := in.Before[gpuID]
	_, ours := in.Ours[gpuID]
	return before || ours
}

// finish returns the journal when a profile is applied on all GPUs that answered. The
// others keep their layout and their entries.
func (in journal) finish(to resolvedProfile, seen []profile.NodeGPU) journal {
	in = in.clone()
	if in.Layouts == nil {
		in.Layouts = map[string]profile.Layout{}
	}
	for i := range seen {
		in.Layouts[seen[i].PCIAddress] = to.Layouts[seen[i].PCIAddress]
	}
	if in.Applied.Snapshot.Hash != to.Snapshot.Hash {
		in.Previous = &previous{Applied: in.Applied, Before: in.Before}
	}
	in.Applied, in.Applying, in.Step = to, nil, ""
	for i := range seen {
		in = in.settle(seen[i].PCIAddress)
	}
	return in
}

// unreadError says that the file cannot be read now, or needs a newer version. It may be whole, and is
// not replaced.
type unreadError struct{ err error }

func (e *unreadError) Error() string {
	return fmt.Sprintf("read the applied profile, which is retried: %v", e.err)
}
func (e *unreadError) Unwrap() error { return e.err }

// readJournal reads the file. It is empty for a new node, which has no file. A file that
// cannot be decoded is renamed, so that the next write does not overwrite it. A file that needs a newer
// version stays.
func readJournal(file string) (journal, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return journal{}, nil
	}
	if err != nil {
		return journal{}, &unreadError{err}
	}
	in, err := decodeJournal(data)
	if err == nil || errors.As(err, new(*unreadError)) {
		return in, err
	}
	aside := file + brokenSuffix
	if rename := os.Rename(file, aside); rename != nil {
		return journal{}, fmt.Errorf("%s, which records the applied profile, cannot be used: %w; and it could not be renamed: %w", file, err, rename)
	}
	return journal{}, fmt.Errorf("%s, which records the applied profile, cannot be used and was renamed to %s; the profile is applied again: %w", file, aside, err)
}

func decodeJournal(data []byte) (journal, error) {
	var in journal
	var err error
	if in.unknown, err = journalFormat.Decode(data, &in); errors.As(err, new(*durable.NewerError)) {
		return journal{}, &unreadError{err}
	} else if err != nil {
		return journal{}, err
	}
	all := []map[string]profile.Layout{in.Layouts, in.Applied.Layouts}
	if in.Applying != nil {
		all = append(all, in.Applying.Layouts)
	}
	if in.Previous != nil {
		all = append(all, in.Previous.Applied.Layouts)
	}
	for _, layouts := range all {
		if err := checkLayouts(layouts); err != nil {
			return journal{}, err
		}
	}
	for gpuID, places := range in.Ours {
		if err := checkLayouts(map[string]profile.Layout{gpuID: {Static: places}}); err != nil {
			return journal{}, err
		}
	}
	return in, nil
}

// checkLayouts refuses layouts with partitions of another GPU, so that an edited file
// cannot make the plugin change that GPU.
func checkLayouts(layouts map[string]profile.Layout) error {
	for gpuID, layout := range layouts {
		for _, p := range layout.Static {
			if p.GPU != gpuID || p.Type != gpu.TypeMIG || p.Profile == "" {
				return fmt.Errorf("layout of GPU %s: %s is not a partition of it", gpuID, p.Name())
			}
		}
	}
	return nil
}

// writeJournal writes the file so that it survives a crash.
func writeJournal(file string, in journal) error {
	data, err := journalFormat.Encode(in, in.unknown)
	if err != nil {
		return fmt.Errorf("encode the applied profile: %w", err)
	}
	if err := durable.WriteFile(file, data); err != nil {
		return fmt.Errorf("record the applied profile in %s (is the disk full or read-only?): %w", file, err)
	}
	return durable.SyncDir(filepath.Dir(file))
}
