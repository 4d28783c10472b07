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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuLocks has one lock for each GPU. It protects the partitions of the GPU and the records of
// the ledger about it. Claims on different GPUs do not wait for each other.
type gpuLocks struct {
	// dir has a lock file for each GPU, which other processes respect: during a rolling
	// update, two plugins work on the node. The kernel releases the locks of a process that
	// dies. Empty: there is no other process.
	dir string

	// patience is how long a claim waits for a GPU that is in exclusive; zero:
	// exclusivePatience.
	patience time.Duration

	// mu protects the maps, not the GPUs.
	mu    sync.Mutex
	locks map[string]chan struct{}
	// exclusive says why a GPU is locked for longer than a claim can wait.
	exclusive map[string]string
}

// exclusivePatience is how long a claim waits for a GPU that is being changed, before the
// kubelet has to retry. Creating a partition takes less, reloading a driver ten times longer.
const exclusivePatience = 5 * time.Second

// otherProcessPause is how often a lock that another process holds is tried.
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

// lock takes the locks of all GPUs, in PCI order to avoid deadlocks.
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
	lock, err := l.lockFile(ctx, gpuID)
	if err != nil {
		<-c
		return nil, err
	}
	return func() { lock.Close(); <-c }, nil
}

// changingError says that a GPU is locked for longer than a claim can wait.
type changingError struct {
	gpu, why string
	// cause ended the wait; nil: the patience was over.
	cause error
}

func (e *changingError) Error() string {
	text := fmt.Sprintf("GPU %s %s; this is retried", gpu.NameOf(e.gpu), e.why)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *changingError) Unwrap() error { return e.cause }

// alone marks a context whose caller waits for a GPU without a limit.
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

// why says why the GPU is locked for long, empty if it is not.
func (l *gpuLocks) why(gpuID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exclusive[gpuID]
}

// say sets why the GPUs are locked for long; empty removes that. The caller holds the locks.
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

// lockFile locks a GPU against other processes.
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

// lock takes the locks of the GPUs, and reads the changes of the ledger by other processes.
func (m *Manager) lock(ctx context.Context, operation string, gpus []string) (unlock func(), err error) {
	_, unlock, err = m.lockRecord(ctx, operation, "", gpus)
	return unlock, err
}

// lockRecord takes the locks of the GPUs and of those in a claim's record. It returns the record as
// it is under these locks; nil if there is none.
func (m *Manager) lockRecord(ctx context.Context, operation string, claim types.UID, gpus []string) (held *ledger.Record, unlock func(), err error) {
	start := time.Now()
	defer func() { m.observe(operation, names.PhaseLock, start, err) }()
	for {
		if unlock, err = m.locks.lock(ctx, gpus); err != nil {
			return nil, nil, err
		}
		if err = m.Refresh(ctx); err != nil {
			unlock()
			return nil, nil, err
		}
		r, ok := m.Ledger.Get(claim)
		if !ok {
			return nil, unlock, nil
		}
		more := slices.DeleteFunc(gpusOf(r), func(gpuID string) bool { return slices.Contains(gpus, gpuID) })
		if len(more) == 0 {
			return &r, unlock, nil
		}
		unlock()
		gpus = slices.Concat(gpus, more)
	}
}

// Refresh reads the changes of the ledger by other processes.
func (m *Manager) Refresh(ctx context.Context) error {
	broken, err := m.Ledger.Refresh()
	if len(broken) > 0 {
		for _, f := range m.recoverBroken(broken) {
			klog.FromContext(ctx).Info(f.Message, "err", f.Err)
		}
	}
	return err
}
