package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// cardLocks has one lock for each card. A card's lock protects what exists on
// the card and what the ledger says about it; claims on different cards do not
// wait for each other.
type cardLocks struct {
	// mu protects the map, not the cards.
	mu    sync.Mutex
	locks map[string]chan struct{}
}

func (l *cardLocks) of(card string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[string]chan struct{}{}
	}
	if l.locks[card] == nil {
		l.locks[card] = make(chan struct{}, 1)
	}
	return l.locks[card]
}

// lock takes the locks of all cards, in PCI order so that two claims can never
// wait for each other in a circle.
func (l *cardLocks) lock(ctx context.Context, pciAddresses []string) (unlock func(), err error) {
	cards := slices.Compact(slices.Sorted(slices.Values(pciAddresses)))
	var held []chan struct{}
	unlock = func() {
		for _, c := range slices.Backward(held) {
			<-c
		}
	}
	for _, card := range cards {
		c := l.of(card)
		select {
		case c <- struct{}{}:
			held = append(held, c)
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("wait for another claim that is being prepared or released on card %s: %w", gpu.CardName(card), context.Cause(ctx))
		}
	}
	return unlock, nil
}
