package drain

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// firstEvictionRetry and lastEvictionRetry are the first and the longest wait between
// evictions of a pod. The wait doubles with each refusal.
const (
	firstEvictionRetry = 2 * time.Second
	lastEvictionRetry  = 30 * time.Second
)

// refusals remembers refused evictions, so that they are not repeated all the time. They are
// lost when the controller restarts.
type refusals struct {
	// mu guards byPod.
	mu    sync.Mutex
	byPod map[types.UID]refusal
}

type refusal struct {
	why  string
	next time.Time
	wait time.Duration
}

// refused returns why the eviction of a pod was refused, empty if it was not.
func (e *refusals) refused(uid types.UID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byPod[uid].why
}

// due reports whether to try an eviction again.
func (e *refusals) due(uid types.UID, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !now.Before(e.byPod[uid].next)
}

// note remembers a refusal. asked is the wait that the API server asked for.
func (e *refusals) note(uid types.UID, why string, now time.Time, asked time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byPod == nil {
		e.byPod = map[types.UID]refusal{}
	}
	r := e.byPod[uid]
	r.why = why
	r.wait = min(max(firstEvictionRetry, r.wait*2), lastEvictionRetry)
	r.next = now.Add(min(max(r.wait, asked), lastEvictionRetry))
	e.byPod[uid] = r
	for other, r := range e.byPod {
		if now.Sub(r.next) > time.Hour {
			delete(e.byPod, other)
		}
	}
}

func (e *refusals) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byPod, uid)
}
