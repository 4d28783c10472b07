package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuLocks has one lock for each GPU. A GPU's lock protects what exists on
// the GPU and what the ledger says about it; claims on different GPUs do not
// wait for each other.
type gpuLocks struct {
	// dir holds a lock file for each GPU, which keeps other processes out:
	// during a rolling update two plugins work on the node. The kernel lets go
	// of them when a process dies. Empty: this process is alone.
	dir string

	// patience is how long a claim waits for a GPU of which exclusive says
	// something, zero: exclusivePatience.
	patience time.Duration

	// mu protects the maps, not the GPUs.
	mu    sync.Mutex
	locks map[string]chan struct{}
	// exclusive says what is done to a GPU whose lock is held for longer than a
	// claim can wait.
	exclusive map[string]string
}

// exclusivePatience is how long a claim waits for a GPU that is being changed,
// before it leaves the waiting to the kubelet's slower retry. A partition is made
// in less, a driver is not loaded anew in ten times that.
const exclusivePatience = 5 * time.Second

// otherProcessPause is how long to wait before another look at a lock that
// another process holds.
const otherProcessPause = 20 * time.Millisecond

func (l *gpuLocks) of(gpuID string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[string]chan struct{}{}
	}
	if l.locks[gpuID] == nil {
		l.locks[gpuID] = make(chan struct{}, 1)
	}
	return l.locks[gpuID]
}

// lock takes the locks of all GPUs, in PCI order so that two claims can never
// wait for each other in a circle.
func (l *gpuLocks) lock(ctx context.Context, pciAddresses []string) (unlock func(), err error) {
	gpus := slices.Compact(slices.Sorted(slices.Values(pciAddresses)))
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	for _, gpuID := range gpus {
		release, err := l.lockOne(ctx, gpuID)
		if err != nil {
			unlock()
			if changing := (*changingError)(nil); errors.As(err, &changing) {
				return nil, err
			}
			return nil, fmt.Errorf("wait for another claim that is being prepared or released on GPU %s: %w", gpu.NameOf(gpuID), err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

func (l *gpuLocks) lockOne(ctx context.Context, gpuID string) (release func(), err error) {
	c := l.of(gpuID)
	if err := l.wait(ctx, gpuID, c); err != nil {
		return nil, err
	}
	if l.dir == "" {
		return func() { <-c }, nil
	}
	lock, err := l.lockFile(ctx, gpuID)
	if err != nil {
		<-c
		return nil, err
	}
	return func() { lock.Close(); <-c }, nil
}

// changingError says that a GPU is held for longer than a claim can wait.
type changingError struct {
	gpu, why string
	// cause is what ended the waiting, nil: patience did.
	cause error
}

func (e *changingError) Error() string {
	text := fmt.Sprintf("GPU %s %s; this is tried again", gpu.NameOf(e.gpu), e.why)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *changingError) Unwrap() error { return e.cause }

// alone marks a context whose caller waits for a GPU however long that takes.
type alone struct{}

// wait takes the lock c of a GPU within this process.
func (l *gpuLocks) wait(ctx context.Context, gpuID string, c chan struct{}) error {
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
			if why := l.why(gpuID); why != "" && ctx.Value(alone{}) == nil {
				return &changingError{gpu: gpuID, why: why}
			}
		case <-ctx.Done():
			if why := l.why(gpuID); why != "" {
				return &changingError{gpu: gpuID, why: why, cause: context.Cause(ctx)}
			}
			return context.Cause(ctx)
		}
	}
}

// why is what is done to the GPU for so long, empty for nothing special.
func (l *gpuLocks) why(gpuID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exclusive[gpuID]
}

// say notes why the GPUs' locks, which the caller holds, are held; empty takes the
// note back.
func (l *gpuLocks) say(gpus []string, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, gpuID := range gpus {
		if why == "" {
			delete(l.exclusive, gpuID)
			continue
		}
		if l.exclusive == nil {
			l.exclusive = map[string]string{}
		}
		l.exclusive[gpuID] = why
	}
}

// lockFile takes the lock that keeps other processes off the GPU.
func (l *gpuLocks) lockFile(ctx context.Context, gpuID string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(l.dir, gpu.NameOf(gpuID)+".lock"))
	switch _, err := lock.TryLockContext(ctx, otherProcessPause); {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("another process holds %s: %w", lock, context.Cause(ctx))
	default:
		return nil, fmt.Errorf("lock %s: %w", lock, err)
	}
}
