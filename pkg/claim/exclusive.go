package claim

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Exclusive runs do while no claim is prepared or released on the GPUs, by this
// process or another, and gives it the records that hold something of them. It waits
// for the GPUs until ctx ends. why says what happens to a GPU, behind its name
// ("is being changed to profile all-balanced"): a claim that comes for one meanwhile
// fails with it when it has waited a few seconds. do must not call the Manager for
// these GPUs.
func (m *Manager) Exclusive(ctx context.Context, gpus []string, why string, do func(held []ledger.Record) error) error {
	unlock, err := m.lock(context.WithValue(ctx, alone{}, true), "change", gpus)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.Ledger.CheckGPUs(gpus); err != nil {
		return err
	}
	m.locks.say(gpus, why)
	defer m.locks.say(gpus, "")
	return do(m.Held(gpus))
}

// Held are the records that hold something of the GPUs. What was handed out under
// another load of a GPU's driver holds nothing. Without the locks of the GPUs they
// can have changed at once.
func (m *Manager) Held(gpus []string) []ledger.Record {
	var held []ledger.Record
	for _, r := range m.Ledger.On(gpus) {
		if now := m.current(&r); now != nil {
			held = append(held, *now)
		}
	}
	return held
}
