package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// cardLocks has one lock for each card. A card's lock protects what exists on
// the card and what the ledger says about it; claims on different cards do not
// wait for each other.
type cardLocks struct {
	// dir holds a lock file for each card, which keeps other processes out:
	// during a rolling update two plugins work on the node. The kernel lets go
	// of them when a process dies. Empty: this process is alone.
	dir string

	// mu protects the map, not the cards.
	mu    sync.Mutex
	locks map[string]chan struct{}
}

// otherProcessPause is how long to wait before another look at a lock that
// another process holds.
const otherProcessPause = 20 * time.Millisecond

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
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	for _, card := range cards {
		release, err := l.lockOne(ctx, card)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("wait for another claim that is being prepared or released on card %s: %w", gpu.CardName(card), err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

func (l *cardLocks) lockOne(ctx context.Context, card string) (release func(), err error) {
	c := l.of(card)
	select {
	case c <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.dir == "" {
		return func() { <-c }, nil
	}
	file, err := l.lockFile(ctx, card)
	if err != nil {
		<-c
		return nil, err
	}
	return func() { file.Close(); <-c }, nil
}

// lockFile takes the lock that keeps other processes off the card.
func (l *cardLocks) lockFile(ctx context.Context, card string) (*os.File, error) {
	path := filepath.Join(l.dir, gpu.CardName(card)+".lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(otherProcessPause):
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("another process holds %s: %w", path, context.Cause(ctx))
		}
	}
}
