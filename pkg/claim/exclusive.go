package claim

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Exclusive runs do while no process prepares or releases claims on the GPUs. do gets the
// records of claims that hold devices of the GPUs, and must not call the Manager for these
// GPUs. Exclusive waits for the GPUs until ctx ends. why completes a sentence that begins with
// the name of a GPU ("is being changed to profile all-balanced"): other claims for the GPUs
// wait a few seconds, and then fail with it.
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

// Held returns the records that hold devices of the GPUs. Devices that were prepared before
// their driver was reloaded do not count. Without the locks of the GPUs, the answer may be
// outdated at once.
func (m *Manager) Held(gpus []string) []ledger.Record {
	var held []ledger.Record
	for _, r := range m.Ledger.On(gpus) {
		if now := m.current(&r); now != nil {
			held = append(held, *now)
		}
	}
	return held
}
