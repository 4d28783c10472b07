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

// Troubles are the fatal errors of the GPUs. They are kept in a file: the driver reports an
// error once, and a restart of the plugin does not repair a GPU. A GPU is unhealthy until
// each of its errors is over. They can end in different ways.
type Troubles struct {
	path string
	// mu protects the events and the file.
	mu     sync.Mutex
	events []gpu.HealthEvent
}

// OpenTroubles reads the errors of earlier runs. If the file cannot be read, it returns the
// error and an empty list. Most GPUs report errors that persist again.
func OpenTroubles(path string) (*Troubles, error) {
	t := &Troubles{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read which GPUs were unhealthy: %w", err)
	}
	if err := json.Unmarshal(data, &t.events); err != nil {
		return &Troubles{path: path}, fmt.Errorf("read which GPUs were unhealthy from %s: %w", path, err)
	}
	return t, nil
}

// sameTrouble tells whether two events report the same error. The later one counts: a reset
// between the two did not help.
func sameTrouble(a, b gpu.HealthEvent) bool { return a.PCIAddress == b.PCIAddress && a.XID == b.XID }

// Add records a fatal error.
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

// Over removes an event, unless the error has occurred again since.
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

// save writes the file. If that fails, the events are still known until the plugin ends.
func (t *Troubles) save(ctx context.Context) {
	data, err := json.Marshal(t.events)
	if err == nil {
		err = durable.WriteFile(t.path, data)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write which GPUs are unhealthy; a plugin that restarts does not know it", "file", t.path)
	}
}

// List returns the events that are not over, the oldest first.
func (t *Troubles) List() []gpu.HealthEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// Problem joins the messages of a GPU's events; empty if there are none.
func (t *Troubles) Problem(pciAddress string) string {
	var messages []string
	for _, e := range t.List() {
		if e.PCIAddress == pciAddress {
			messages = append(messages, e.Message)
		}
	}
	return strings.Join(messages, "; ")
}
