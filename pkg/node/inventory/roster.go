package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// missedChecks is how many checks in a row after a boot must miss a GPU until it counts as
// removed from the machine. A driver may initialize its GPUs one by one.
const missedChecks = 12

// Roster is the list of the node's GPUs as profiles count them, with those that do not answer
// now. Otherwise a rule for the third GPU would move to another GPU when one fails. It is
// kept in a file, because a plugin that restarts cannot find the GPUs that do not answer.
type Roster struct {
	// mu protects the fields below.
	mu   sync.RWMutex
	file durable.State[rosterFile]
	gpus map[string]*rosterGPU
}

type rosterFile struct {
	// GPUs are in PCI order.
	GPUs []*rosterGPU `json:"gpus"`
}

var rosterFormat = durable.Format{Version: 1, MinReader: 1}

// rosterGPU is a GPU as it was when it last answered.
type rosterGPU struct {
	gpu.GPU
	// BootID identifies the boot in which the GPU last answered.
	BootID string `json:"bootID,omitempty"`
	// unknown are keys of a newer version.
	unknown durable.Unknown
	// answers: the last check found the GPU. missed counts the checks in a row after a
	// boot that did not.
	answers bool
	missed  int
}

// UnmarshalJSON keeps the keys of a newer version.
func (c *rosterGPU) UnmarshalJSON(data []byte) (err error) {
	type plain rosterGPU
	c.unknown, err = durable.Unmarshal(data, (*plain)(c))
	return err
}

// MarshalJSON adds the keys of a newer version.
func (c rosterGPU) MarshalJSON() ([]byte, error) {
	type plain rosterGPU
	return durable.Marshal(plain(c), c.unknown)
}

// OpenRoster reads the GPUs of earlier runs. If that fails, it returns the error and an empty roster.
// Update tries again to read a file that is not broken.
func OpenRoster(path string) (*Roster, error) {
	r := &Roster{file: durable.State[rosterFile]{Path: path, Format: rosterFormat}, gpus: map[string]*rosterGPU{}}
	return r, r.read()
}

// read replaces the GPUs by those of the file, whose indexes count. The caller holds the lock, and
// adds the GPUs that answer.
func (r *Roster) read() error {
	known, err := r.file.Read()
	if err != nil {
		return fmt.Errorf("read which GPUs the node has from %s: %w", r.file.Path, err)
	}
	before := r.gpus
	r.gpus = map[string]*rosterGPU{}
	for _, c := range known.GPUs {
		if c == nil || c.PCIAddress == "" {
			continue
		}
		if now := before[c.PCIAddress]; now != nil {
			c.BootID = now.BootID
		}
		r.gpus[c.PCIAddress] = c
	}
	return nil
}

// Update records the result of a check: the GPUs that answered, the problems of others that a
// driver still lists, and the vendors whose drivers listed all of their GPUs. bootID is empty if it is not known. While a GPU
// does not answer, Update restores the indexes of the others of its vendor, because the driver
// counts without it. It returns the addresses of the GPUs that were removed from the machine.
func (r *Roster) Update(ctx context.Context, found []gpu.GPU, problems map[string]gpu.Problem, told []gpu.Vendor, bootID string) (removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.file.Unread()
	if changed {
		if err := r.read(); err != nil {
			klog.FromContext(ctx).Error(err, "Profiles count only GPUs that answer")
		}
	}
	for _, c := range r.gpus {
		c.answers = slices.ContainsFunc(found, func(g gpu.GPU) bool { return g.PCIAddress == c.PCIAddress })
		_, named := problems[c.PCIAddress]
		if c.answers || named || bootID == "" || c.BootID == bootID || !slices.Contains(told, c.Vendor) {
			c.missed = 0
			continue
		}
		if c.missed++; c.missed >= missedChecks {
			removed = append(removed, c.PCIAddress)
			delete(r.gpus, c.PCIAddress)
			changed = true
		}
	}
	for i := range found {
		g := &found[i]
		r.keepIndex(g)
		before := r.gpus[g.PCIAddress]
		if before == nil || before.BootID != bootID || !reflect.DeepEqual(before.GPU, *g) {
			changed = true
			now := &rosterGPU{GPU: *g, BootID: bootID, answers: true}
			if before != nil && before.UUID == g.UUID {
				now.unknown = before.unknown
			}
			r.gpus[g.PCIAddress] = now
		}
	}
	if changed {
		r.save(ctx)
	}
	slices.Sort(removed)
	return removed
}

// keepIndex keeps a known GPU's index while a GPU of the vendor does not answer. A new GPU
// gets a free index. The caller holds the lock.
func (r *Roster) keepIndex(g *gpu.GPU) {
	taken, silent := map[int]bool{}, false
	for _, c := range r.gpus {
		if c.Vendor == g.Vendor {
			taken[c.Index] = true
			silent = silent || !c.answers
		}
	}
	if !silent {
		return
	}
	if before := r.gpus[g.PCIAddress]; before != nil {
		g.Index = before.Index
		return
	}
	for taken[g.Index] {
		g.Index++
	}
}

// save writes the file. If that fails, the GPUs are still known until the plugin ends. The
// caller holds the lock.
func (r *Roster) save(ctx context.Context) {
	gpus := slices.SortedFunc(maps.Values(r.gpus), func(a, b *rosterGPU) int { return cmp.Compare(a.PCIAddress, b.PCIAddress) })
	if err := r.file.Write(rosterFile{GPUs: gpus}); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the list of the node's GPUs; after a restart, profiles do not count a GPU that does not answer", "file", r.file.Path)
	}
}

// All returns the GPUs of the node in PCI order, with all of their possible devices, whether
// a profile offers them or not.
func (r *Roster) All() []gpu.GPU { return r.those(func(*rosterGPU) bool { return true }) }

// Answering returns the GPUs that the last check found.
func (r *Roster) Answering() []gpu.GPU { return r.those(func(c *rosterGPU) bool { return c.answers }) }

// Silent returns the GPUs that the last check did not find, and that were not removed from the machine as
// far as is known.
func (r *Roster) Silent() []gpu.GPU {
	return r.those(func(c *rosterGPU) bool { return !c.answers && c.missed == 0 })
}

func (r *Roster) those(which func(*rosterGPU) bool) []gpu.GPU {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var gpus []gpu.GPU
	for _, c := range r.gpus {
		if which(c) {
			gpus = append(gpus, c.GPU)
		}
	}
	gpu.SortGPUs(gpus)
	return gpus
}

// Lost reports whether a GPU does not answer.
func (r *Roster) Lost(pciAddress string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.gpus[pciAddress]
	return c == nil || !c.answers
}
