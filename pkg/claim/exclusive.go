package claim

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Exclusive runs do while no claim is prepared or released on the cards, by this
// process or another, and gives it the records that hold something of them. It waits
// for the cards until ctx ends. why says what happens to a card, behind its name
// ("is being changed to profile all-balanced"): a claim that comes for one meanwhile
// fails with it when it has waited a few seconds. do must not call the Manager for
// these cards.
func (m *Manager) Exclusive(ctx context.Context, cards []string, why string, do func(held []ledger.Record) error) error {
	unlock, err := m.lock(context.WithValue(ctx, alone{}, true), "change", cards)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.Ledger.CheckGPUs(cards); err != nil {
		return err
	}
	m.locks.say(cards, why)
	defer m.locks.say(cards, "")
	return do(m.Held(cards))
}

// Held are the records that hold something of the cards. What was handed out under
// another load of a card's driver holds nothing. Without the locks of the cards they
// can have changed at once.
func (m *Manager) Held(cards []string) []ledger.Record {
	var held []ledger.Record
	for _, r := range m.Ledger.On(cards) {
		if now := m.current(&r); now != nil {
			held = append(held, *now)
		}
	}
	return held
}
