package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Troubles are the fatal events of the GPUs. They are kept in a file: the driver
// reports an error once, and a restart of the plugin does not repair a GPU. A GPU is
// unhealthy until each of its events is over, because they end in different ways.
type Troubles struct {
	path string
	// mu protects the events and the file.
	mu     sync.Mutex
	events []gpu.HealthEvent
}

// OpenTroubles reads what an earlier run knew. A file that cannot be read is
// reported and left behind: what it knew is lost, but GPUs that are still in
// trouble mostly say so again.
func OpenTroubles(path string) (*Troubles, error) {
	t := &Troubles{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read which GPUs were in trouble: %w", err)
	}
	if err := json.Unmarshal(data, &t.events); err != nil {
		return &Troubles{path: path}, fmt.Errorf("read which GPUs were in trouble from %s: %w", path, err)
	}
	return t, nil
}

// sameTrouble tells whether two events end together. Of the same error the later
// event counts: a reset between the two did not help.
func sameTrouble(a, b gpu.HealthEvent) bool { return a.PCIAddress == b.PCIAddress && a.XID == b.XID }

// Add takes in a fatal event.
func (t *Troubles) Add(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.events, func(known gpu.HealthEvent) bool { return sameTrouble(known, e) })
	if i < 0 {
		t.events = append(t.events, e)
	} else {
		t.events[i] = e
	}
	t.save(ctx)
}

// Over drops an event, unless the same error has come again meanwhile.
func (t *Troubles) Over(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.events)
	t.events = slices.DeleteFunc(t.events, func(known gpu.HealthEvent) bool { return sameEvent(known, e) })
	if len(t.events) < before {
		t.save(ctx)
	}
}

func sameEvent(a, b gpu.HealthEvent) bool {
	return sameTrouble(a, b) && a.Message == b.Message && a.LoadID == b.LoadID && a.Energy == b.Energy
}

// save writes the file. If it cannot, the events are still in force in this run.
func (t *Troubles) save(ctx context.Context) {
	data, err := json.Marshal(t.events)
	if err == nil {
		err = durable.WriteFile(t.path, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Which GPUs are in trouble could not be written down, and is forgotten if the plugin restarts", "file", t.path)
	}
}

// List returns the events that are not over, in the order in which they came.
func (t *Troubles) List() []gpu.HealthEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// Problem is what the events say about one GPU, empty if there are none.
func (t *Troubles) Problem(pciAddress string) string {
	var messages []string
	for _, e := range t.List() {
		if e.PCIAddress == pciAddress {
			messages = append(messages, e.Message)
		}
	}
	return strings.Join(messages, "; ")
}
