package claim

import (
	"cmp"
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

	// patience is how long a claim waits for a card of which exclusive says
	// something, zero: exclusivePatience.
	patience time.Duration

	// mu protects the maps, not the cards.
	mu    sync.Mutex
	locks map[string]chan struct{}
	// exclusive says what is done to a card whose lock is held for longer than a
	// claim can wait.
	exclusive map[string]string
}

// exclusivePatience is how long a claim waits for a card that is being changed,
// before it leaves the waiting to the kubelet's slower retry. A partition is made
// in less, a driver is not loaded anew in ten times that.
const exclusivePatience = 5 * time.Second

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
			if changing := (*changingError)(nil); errors.As(err, &changing) {
				return nil, err
			}
			return nil, fmt.Errorf("wait for another claim that is being prepared or released on card %s: %w", gpu.CardName(card), err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

func (l *cardLocks) lockOne(ctx context.Context, card string) (release func(), err error) {
	c := l.of(card)
	if err := l.wait(ctx, card, c); err != nil {
		return nil, err
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

// changingError says that a card is held for longer than a claim can wait.
type changingError struct {
	card, why string
	// cause is what ended the waiting, nil: patience did.
	cause error
}

func (e *changingError) Error() string {
	text := fmt.Sprintf("card %s %s; this is tried again", gpu.CardName(e.card), e.why)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *changingError) Unwrap() error { return e.cause }

// alone marks a context whose caller waits for a card however long that takes.
type alone struct{}

// wait takes the lock c of a card within this process.
func (l *cardLocks) wait(ctx context.Context, card string, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	default:
	}
	patience := time.NewTicker(cmp.Or(l.patience, exclusivePatience))
	defer patience.Stop()
	for {
		select {
		case c <- struct{}{}:
			return nil
		case <-patience.C:
			if why := l.why(card); why != "" && ctx.Value(alone{}) == nil {
				return &changingError{card: card, why: why}
			}
		case <-ctx.Done():
			if why := l.why(card); why != "" {
				return &changingError{card: card, why: why, cause: context.Cause(ctx)}
			}
			return context.Cause(ctx)
		}
	}
}

// why is what is done to the card for so long, empty for nothing special.
func (l *cardLocks) why(card string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exclusive[card]
}

// say notes why the cards' locks, which the caller holds, are held; empty takes the
// note back.
func (l *cardLocks) say(cards []string, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, card := range cards {
		if why == "" {
			delete(l.exclusive, card)
			continue
		}
		if l.exclusive == nil {
			l.exclusive = map[string]string{}
		}
		l.exclusive[card] = why
	}
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
