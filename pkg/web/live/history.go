package live

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/usage"
)

const (
	// period is the time between two samples, kept how long they are kept.
	period, kept = 15 * time.Second, time.Hour
	// interest is how long a node is read after somebody has looked at it.
	interest = 5 * time.Minute
	// open is how long ago the node of an open page was looked at, at most. Pages are drawn again
	// every 10 seconds.
	open = 30 * time.Second
	// readTimeout is how long a node may take to be read: less than period, so that reads do not pile up.
	readTimeout = 10 * time.Second
	// maxNodes is how many nodes are kept.
	maxNodes = 64
)

var (
	errReading = errors.New("the metrics of the node are being read")
	errMany    = errors.New("too many nodes are looked at; this one is read when somebody has closed the page of another")
)

// UsageReader reads the plugin of a node.
type UsageReader func(ctx context.Context, node string) (usage.Node, error)

// History keeps how busy the GPUs were in the last hour, of the nodes that somebody looks at. It
// implements web.Usage.
type History struct {
	read UsageReader
	wake chan struct{}
	// listeners are told of new samples of a node.
	listeners listeners

	// mu protects what follows.
	mu    sync.Mutex
	nodes map[string]*node
}

// node is a node that somebody looks at.
type node struct {
	looked time.Time
	// followed: it is being read again and again.
	followed bool
	gpus     map[string]*measured
	// reason is why it is not known how busy its GPUs are now.
	reason error
}

// NewHistory returns a history of nothing. Run reads.
func NewHistory(read UsageReader) *History {
	return &History{read: read, wake: make(chan struct{}, 1), nodes: map[string]*node{}}
}

// Node returns the use of a node's GPUs by their names, and why it is not known, or not any more.
// It does not wait: the node is read in the background.
func (k *History) Node(name string) (map[string]overview.Usage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	if n == nil {
		if !k.room() {
			return nil, errMany
		}
		n = &node{gpus: map[string]*measured{}, reason: errReading}
		k.nodes[name] = n
	}
	n.looked = time.Now()
	if !n.followed {
		select {
		case k.wake <- struct{}{}:
		default: // Run is awake already
		}
	}
	out := map[string]overview.Usage{}
	for gpu, s := range n.gpus {
		out[gpu] = s.use(n.reason == nil)
	}
	return out, n.reason
}

// room reports whether there is room for another node, or makes some. The lock is held.
func (k *History) room() bool {
	if len(k.nodes) < maxNodes {
		return true
	}
	oldest, looked := "", time.Now().Add(-open)
	for name, n := range k.nodes {
		if n.looked.Before(looked) {
			oldest, looked = name, n.looked
		}
	}
	delete(k.nodes, oldest)
	return oldest != ""
}

// Subscribe returns a channel that gets a value after each new sample of a node. Who is slow
// misses some. The caller ends the subscription.
func (k *History) Subscribe(node string) (updates <-chan struct{}, end func()) {
	return k.listeners.subscribe(node)
}

// Run reads the nodes that somebody looks at, until ctx ends.
func (k *History) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	ticker := time.NewTicker(interest)
	defer ticker.Stop()
	for {
		for name, n := range k.begin() {
			following.Go(func() { k.follow(ctx, name, n) })
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-ticker.C:
		}
	}
}

// begin returns the nodes that are to be followed from now on. Those are forgotten of which every
// sample is old.
func (k *History) begin() map[string]*node {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]*node{}
	for name, n := range k.nodes {
		switch since := time.Since(n.looked); {
		case since > kept+interest:
			delete(k.nodes, name)
		case since < interest && !n.followed:
			n.followed = true
			out[name] = n
		}
	}
	return out
}

// follow reads a node until nobody looks at it.
func (k *History) follow(ctx context.Context, name string, n *node) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for k.wanted(name, n) {
		k.sample(ctx, name, n)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (k *History) wanted(name string, n *node) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes[name] == n && time.Since(n.looked) < interest {
		return true
	}
	n.followed, n.reason = false, errReading // as it is when somebody looks again
	return false
}

// sample reads a node, keeps what it reads, and tells who follows.
func (k *History) sample(ctx context.Context, name string, n *node) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	read, err := k.read(ctx, name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n.reason = err; err == nil {
		n.keep(read.GPUs, time.Now())
	}
	k.listeners.notify(name)
}
