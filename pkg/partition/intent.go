package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// intentVersion is the version of the file that this code writes. A reader ignores
// fields that it does not know; a version that is higher than the reader's is refused.
const intentVersion = 1

// brokenSuffix is put behind the name of a file that cannot be read.
const brokenSuffix = ".broken"

// intent is what the node follows, and what is about to be changed. It is written
// before the hardware is touched: what is found there later may be ours.
type intent struct {
	Version int `json:"version"`
	// Applied is the wish that the node follows.
	Applied followed `json:"applied"`
	// Applying is the wish that is being applied, or whose application was given up:
	// then Applied is no longer all true either.
	Applying *followed `json:"applying,omitempty"`
	// Shapes are those that the GPUs have, by PCI address. They are those of Applied,
	// and of Applying for GPUs that are done.
	Shapes map[string]profile.Shape `json:"shapes,omitempty"`
	// Before is how the GPUs were set when Applied was all true, while Applying is
	// there, and afterwards for GPUs that have fallen silent meanwhile.
	Before map[string]gpu.Modes `json:"before,omitempty"`
	// Ours are, for as long, the placements of partitions that were made to stay, or
	// were about to be, on GPUs that are not done.
	Ours map[string][]gpu.Placement `json:"ours,omitempty"`
	// Last is what the last wish that was followed took the place of, to go back to it:
	// whoever asked for it may find only then that something is wrong.
	Last *last `json:"last,omitempty"`
	// Step is the step that was begun last, for people.
	Step string `json:"step,omitempty"`
}

// followed is a wish with what it came to on this node's GPUs, by PCI address. The
// partitions that stay keep their places.
type followed struct {
	Wish   v1alpha1.ProfileSnapshot `json:"wish"`
	Shapes map[string]profile.Shape `json:"shapes,omitempty"`
	// Vendors are those of the GPUs, in order.
	Vendors []gpu.Vendor `json:"vendors,omitempty"`
}

// last is what was followed, and how the GPUs were set then.
type last struct {
	followed
	Before map[string]gpu.Modes `json:"before,omitempty"`
}

// reopen is the intent as if the wish that was followed last had not come to its end.
func (in intent) reopen() intent {
	given := in.Applied
	in.Applied, in.Applying, in.Before, in.Last = in.Last.followed, &given, in.Last.Before, nil
	return in
}

// clone returns a copy whose maps can be changed.
func (in intent) clone() intent {
	in.Shapes, in.Before, in.Ours = maps.Clone(in.Shapes), maps.Clone(in.Before), maps.Clone(in.Ours)
	return in
}

// static tells whether a partition at the placement is there to stay.
func (in *intent) static(p gpu.Placement) bool {
	is := func(q gpu.Placement) bool { return q.Name() == p.Name() }
	return slices.ContainsFunc(in.Shapes[p.GPU].Layout, is) || slices.ContainsFunc(in.Ours[p.GPU], is)
}

// ours are the placements of a GPU at which partitions may be that were made to
// stay.
func (in *intent) ours(gpuID string) []gpu.Placement {
	return union(in.Shapes[gpuID].Layout, in.Ours[gpuID])
}

func union(a, b []gpu.Placement) []gpu.Placement {
	all := slices.Clone(a)
	for _, p := range b {
		if !slices.ContainsFunc(all, func(q gpu.Placement) bool { return q.Name() == p.Name() }) {
			all = append(all, p)
		}
	}
	return all
}

// begin is the intent while a wish is being applied.
func (in intent) begin(to followed, now map[string]gpu.Modes) intent {
	in = in.clone()
	if in.Before == nil {
		in.Before = map[string]gpu.Modes{}
	}
	if in.Ours == nil {
		in.Ours = map[string][]gpu.Placement{}
	}
	for gpuID, modes := range now {
		// An earlier try may have changed the GPU already.
		if _, ok := in.Before[gpuID]; !ok || in.Applying == nil {
			in.Before[gpuID] = modes
		}
	}
	for gpuID, shape := range to.Shapes {
		if all := union(in.Ours[gpuID], shape.Layout); len(all) > 0 {
			in.Ours[gpuID] = all
		}
	}
	if in.Applying != nil {
		// Whose GPUs were gone at the earlier try must come back all the same.
		to.Vendors = slices.Compact(slices.Sorted(slices.Values(slices.Concat(to.Vendors, in.Applying.Vendors))))
	}
	in.Applying = &to
	return in
}

// done is the intent when a GPU has a shape.
func (in intent) done(gpuID string, shape profile.Shape) intent {
	in = in.clone()
	if in.Shapes == nil {
		in.Shapes = map[string]profile.Shape{}
	}
	in.Shapes[gpuID] = shape
	return in.settle(gpuID)
}

// settle is the intent when nothing is left to do on a GPU.
func (in intent) settle(gpuID string) intent {
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

// unsettled tells whether something is known of a GPU that is for a change only.
func (in *intent) unsettled(gpuID string) bool {
	_, before := in.Before[gpuID]
	_, ours := in.Ours[gpuID]
	return before || ours
}

// finish is the intent when all GPUs that were seen follow a wish. The others keep
// the shape that they had, and what is known of them: what was made on them is ours.
func (in intent) finish(to followed, seen []GPU) intent {
	in = in.clone()
	if in.Shapes == nil {
		in.Shapes = map[string]profile.Shape{}
	}
	for i := range seen {
		in.Shapes[seen[i].PCIAddress] = to.Shapes[seen[i].PCIAddress]
	}
	if in.Applied.Wish.Hash != to.Wish.Hash {
		in.Last = &last{followed: in.Applied, Before: in.Before}
	}
	in.Applied, in.Applying, in.Step = to, nil, ""
	for i := range seen {
		in = in.settle(seen[i].PCIAddress)
	}
	return in
}

// readIntent reads the file. One that is not there is that of a new node. One that
// cannot be understood is set aside, so that the next write does not lose it.
func readIntent(file string) (intent, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return intent{}, nil
	}
	if err != nil {
		return intent{}, fmt.Errorf("read which profile the node follows: %w", err)
	}
	in, err := decodeIntent(data)
	if err == nil {
		return in, nil
	}
	aside := file + brokenSuffix
	if rename := os.Rename(file, aside); rename != nil {
		return intent{}, fmt.Errorf("%s, which says which profile the node follows, cannot be used: %w; and it could not be set aside: %w", file, err, rename)
	}
	return intent{}, fmt.Errorf("%s, which says which profile the node follows, cannot be used and lies now at %s; the profile is applied again: %w", file, aside, err)
}

func decodeIntent(data []byte) (intent, error) {
	var in intent
	if err := json.Unmarshal(data, &in); err != nil {
		return intent{}, fmt.Errorf("no valid JSON: %w", err)
	}
	if in.Version < 1 || in.Version > intentVersion {
		return intent{}, fmt.Errorf("version is %d, this driver knows 1 to %d", in.Version, intentVersion)
	}
	all := []map[string]profile.Shape{in.Shapes, in.Applied.Shapes}
	if in.Applying != nil {
		all = append(all, in.Applying.Shapes)
	}
	if in.Last != nil {
		all = append(all, in.Last.Shapes)
	}
	for _, shapes := range all {
		if err := checkShapes(shapes); err != nil {
			return intent{}, err
		}
	}
	for gpuID, places := range in.Ours {
		if err := checkShapes(map[string]profile.Shape{gpuID: {Layout: places}}); err != nil {
			return intent{}, err
		}
	}
	return in, nil
}

// checkShapes refuses partitions that are said to be of another GPU: whoever edits
// the file must not make us touch that.
func checkShapes(shapes map[string]profile.Shape) error {
	for gpuID, shape := range shapes {
		for _, p := range shape.Layout {
			if p.GPU != gpuID || p.Type != gpu.TypeMIG || p.Profile == "" {
				return fmt.Errorf("shape of GPU %s: %s is no partition of it", gpuID, p.Name())
			}
		}
	}
	return nil
}

// writeIntent writes the file so that it survives a crash.
func writeIntent(file string, in intent) error {
	in.Version = intentVersion
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode which profile the node follows: %w", err)
	}
	if err := durable.WriteFile(file, data); err != nil {
		return fmt.Errorf("write down which profile the node follows, to %s (is the disk full or read-only?): %w", file, err)
	}
	return durable.SyncDir(filepath.Dir(file))
}

// fileVersion tells one content of a file from the next: each write makes a new file.
type fileVersion struct {
	inode        uint64
	size         int64
	sec, nanosec int64
}

// versionOf is that of a file as it is now, zero for one that is not there.
func versionOf(file string) fileVersion {
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil {
		return fileVersion{}
	}
	return fileVersion{s.Ino, s.Size, s.Mtim.Sec, s.Mtim.Nsec}
}
