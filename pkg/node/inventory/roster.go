package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// goneLooks is how many looks in a row after a boot must not find a GPU of an earlier
// boot until it counts as taken out: a driver may bring its GPUs up one by one.
const goneLooks = 12

// Roster is the GPUs of the node as profiles count them: those that answer, and those
// that were there and do not answer now. A rule for so many GPUs, or for the third
// GPU, must not go over to others because one has fallen silent. It is kept in a file,
// because a plugin that starts anew does not see the silent ones.
type Roster struct {
	path string
	// mu protects the map and the file.
	mu   sync.RWMutex
	gpus map[string]*rosterGPU
}

// rosterGPU is a GPU as it was when it answered last.
type rosterGPU struct {
	gpu.GPU
	// BootID is of the boot in which it was found last.
	BootID string
	// answers tells whether the last look found it, missed how many looks in a row
	// after a boot have not.
	answers bool
	missed  int
}

// OpenRoster reads the GPUs of earlier runs. A file that cannot be read is reported:
// then the GPUs are those that answer.
func OpenRoster(path string) (*Roster, error) {
	r := &Roster{path: path, gpus: map[string]*rosterGPU{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var known []*rosterGPU
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		return r, fmt.Errorf("read which GPUs the node has from %s: %w", path, err)
	}
	for _, c := range known {
		if c != nil && c.PCIAddress != "" {
			r.gpus[c.PCIAddress] = c
		}
	}
	return r, nil
}

// Update takes in a look at the hardware: the GPUs that answered, which of the others
// a driver still names, and the vendors of which it is known which GPUs there are. It
// gives the GPUs that were found the indexes that they had, as long as one of their
// vendor is silent: the driver counts without it. It returns the GPUs that are not
// the node's any more.
func (r *Roster) Update(ctx context.Context, found []gpu.GPU, problems map[string]string, told []gpu.Vendor, bootID string) (removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for _, c := range r.gpus {
		c.answers = slices.ContainsFunc(found, func(g gpu.GPU) bool { return g.PCIAddress == c.PCIAddress })
		_, named := problems[c.PCIAddress]
		if c.answers || named || c.BootID == bootID || !slices.Contains(told, c.Vendor) {
			c.missed = 0
			continue
		}
		if c.missed++; c.missed >= goneLooks {
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
			r.gpus[g.PCIAddress] = &rosterGPU{GPU: *g, BootID: bootID, answers: true}
		}
	}
	if changed {
		r.save(ctx)
	}
	slices.Sort(removed)
	return removed
}

// keepIndex gives a GPU the index that it had, and a new one one that no other has,
// while a GPU of its vendor is silent. The caller holds the lock.
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

// save writes the file. If it cannot, the GPUs are still known in this run. The caller
// holds the lock.
func (r *Roster) save(ctx context.Context) {
	data, err := json.Marshal(slices.SortedFunc(maps.Values(r.gpus), func(a, b *rosterGPU) int { return cmp.Compare(a.PCIAddress, b.PCIAddress) }))
	if err == nil {
		err = durable.WriteFile(r.path, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Which GPUs the node has could not be written down; a plugin that starts while one is silent does not count it", "file", r.path)
	}
}

// All are the GPUs of the node in PCI order, with everything that can be cut from
// them, offered or not.
func (r *Roster) All() []gpu.GPU { return r.those(func(*rosterGPU) bool { return true }) }

// Answering are those that the last look found.
func (r *Roster) Answering() []gpu.GPU { return r.those(func(c *rosterGPU) bool { return c.answers }) }

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

// Lost tells whether a GPU does not answer.
func (r *Roster) Lost(pciAddress string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.gpus[pciAddress]
	return c == nil || !c.answers
}
