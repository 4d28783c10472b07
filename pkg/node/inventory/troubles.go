package inventory

import (
	"cmp"
	"context"
	"fmt"
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
	// mu protects the fields below.
	mu     sync.Mutex
	file   durable.State[troublesFile]
	events []trouble
}

type troublesFile struct {
	// Events are the events that are not over, the oldest first.
	Events []trouble `json:"events"`
}

var troublesFormat = durable.Format{Version: 1, MinReader: 1}

type trouble struct {
	gpu.HealthEvent
	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// UnmarshalJSON keeps the keys of a newer version.
func (t *trouble) UnmarshalJSON(data []byte) (err error) {
	type plain trouble
	t.unknown, err = durable.Unmarshal(data, (*plain)(t))
	return err
}

// MarshalJSON adds the keys of a newer version.
func (t trouble) MarshalJSON() ([]byte, error) {
	type plain trouble
	return durable.Marshal(plain(t), t.unknown)
}

// OpenTroubles reads the errors of earlier runs. If that fails, it returns the error and an empty
// list. Most GPUs report errors that persist again. A file that is not broken is read later.
func OpenTroubles(path string) (*Troubles, error) {
	t := &Troubles{file: durable.State[troublesFile]{Path: path, Format: troublesFormat}}
	return t, t.read()
}

// read reads the file if that has not been possible so far. Events of this run are newer. The caller
// holds the lock.
func (t *Troubles) read() error {
	if !t.file.Unread() {
		return nil
	}
	known, err := t.file.Read()
	if err != nil {
		return fmt.Errorf("read which GPUs were unhealthy from %s: %w", t.file.Path, err)
	}
	mine := t.events
	t.events = known.Events
	for _, e := range mine {
		t.put(e.HealthEvent)
	}
	if len(mine) > 0 {
		return t.file.Write(troublesFile{Events: t.events})
	}
	return nil
}

// sameTrouble reports whether two events report the same error. The later one counts: a reset
// between the two did not help.
func sameTrouble(a, b gpu.HealthEvent) bool { return a.PCIAddress == b.PCIAddress && a.XID == b.XID }

// Add records a fatal error.
func (t *Troubles) Add(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retry(ctx)
	t.put(e)
	t.save(ctx)
}

// retry reads the file if that failed before.
func (t *Troubles) retry(ctx context.Context) {
	if err := t.read(); err != nil {
		klog.FromContext(ctx).Error(err, "Unhealthy GPUs may be allocated again")
	}
}

func (t *Troubles) put(e gpu.HealthEvent) {
	i := slices.IndexFunc(t.events, func(known trouble) bool { return sameTrouble(known.HealthEvent, e) })
	if i < 0 {
		t.events = append(t.events, trouble{HealthEvent: e})
	} else {
		t.events[i] = trouble{HealthEvent: e}
	}
}

// Over removes an event, unless the error has occurred again since.
func (t *Troubles) Over(ctx context.Context, e gpu.HealthEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retry(ctx)
	before := len(t.events)
	t.events = slices.DeleteFunc(t.events, func(known trouble) bool { return sameEvent(known.HealthEvent, e) })
	if len(t.events) < before {
		t.save(ctx)
	}
}

func sameEvent(a, b gpu.HealthEvent) bool {
	return sameTrouble(a, b) && a.Message == b.Message && a.LoadID == b.LoadID && a.Energy == b.Energy
}

// save writes the file. If that fails, the events are still known until the plugin ends.
func (t *Troubles) save(ctx context.Context) {
	if err := t.file.Write(troublesFile{Events: t.events}); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write which GPUs are unhealthy; a plugin that restarts does not know it", "file", t.file.Path)
	}
}

// List returns the events that are not over, the oldest first.
func (t *Troubles) List() []gpu.HealthEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.read() // it is tried again with each check, and reported with each change
	events := make([]gpu.HealthEvent, len(t.events))
	for i, e := range t.events {
		events[i] = e.HealthEvent
	}
	return events
}

// Problem joins the messages of a GPU's events, and has the cause of the oldest; empty if there are none.
func (t *Troubles) Problem(pciAddress string) (p gpu.Problem) {
	var messages []string
	for _, e := range t.List() {
		if e.PCIAddress == pciAddress {
			p.Cause = cmp.Or(p.Cause, e.Cause)
			messages = append(messages, e.Message)
		}
	}
	p.Message = strings.Join(messages, "; ")
	return p
}
