package live

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Store has the objects, and the newest snapshot.
type Store struct {
	now func() time.Time

	// mu protects what follows.
	mu       sync.Mutex
	slices   *kind[packed]
	claims   *kind[resourceapi.ResourceClaim]
	classes  *kind[resourceapi.DeviceClass]
	rules    *kind[resourceapi.DeviceTaintRule]
	nodes    *kind[corev1.Node]
	gpuNodes *kind[v1beta1.GPUNode]
	plans    *kind[v1beta1.PartitionPlan]
	pods     *kind[corev1.Pod]
	// slicesOf and claimsOf are those of a node, by their keys.
	slicesOf map[string]map[string]*packed
	claimsOf map[string]map[string]*resourceapi.ResourceClaim
	// stale are nodes to compute again; allStale: all of them. staleWaiting and staleKinds are the
	// same of other parts. What takes no time is always computed again.
	stale                              map[string]bool
	allStale, staleWaiting, staleKinds bool
	unread                             map[string]text.Unread
	// expected are the kinds that were neither read nor refused yet.
	expected map[string]bool

	wake     chan struct{}
	snapshot atomic.Pointer[overview.Snapshot]

	// listeners are told of new snapshots.
	listeners listeners

	// explaining has a value while a pod is explained.
	explaining chan struct{}

	// samples has a device of each kind, and the classes that select it. Only Run uses it.
	samples samples
}

// New returns a store without objects.
func New(now func() time.Time) *Store {
	s := &Store{
		now: now, slicesOf: map[string]map[string]*packed{}, claimsOf: map[string]map[string]*resourceapi.ResourceClaim{},
		stale: map[string]bool{}, unread: map[string]text.Unread{}, expected: map[string]bool{},
		wake: make(chan struct{}, 1), explaining: make(chan struct{}, 1),
	}
	s.slices = newKind(s, func(o any) *packed {
		o, _ = pack(o) // what cannot be packed is left out
		return whole[packed](o)
	}, s.sliceChanged)
	s.claims = newKind(s, trimmed(trimClaim), s.claimChanged)
	s.classes = newKind(s, whole[resourceapi.DeviceClass], func(_, _ *resourceapi.DeviceClass) { s.staleWaiting, s.staleKinds = true, true })
	s.rules = newKind(s, whole[resourceapi.DeviceTaintRule], func(_, _ *resourceapi.DeviceTaintRule) { s.allStale = true })
	s.nodes = newKind(s, trimmed(trimNode), func(before, now *corev1.Node) { s.stale[cmp.Or(now, before).Name] = true })
	s.gpuNodes = newKind(s, whole[v1beta1.GPUNode], func(before, now *v1beta1.GPUNode) { s.stale[cmp.Or(now, before).Name] = true })
	s.plans = newKind(s, whole[v1beta1.PartitionPlan], func(_, _ *v1beta1.PartitionPlan) {})
	s.pods = newKind(s, trimmed(trimPod), func(_, _ *corev1.Pod) { s.staleWaiting = true })
	s.snapshot.Store(&overview.Snapshot{})
	return s
}

func (s *Store) sliceChanged(before, now *packed) {
	if before != nil {
		delete(s.slicesOf[before.node], before.Name)
		s.stale[before.node] = true
	}
	if now != nil {
		put(s.slicesOf, now.node, now.Name, now)
		s.stale[now.node] = true
	}
}

func (s *Store) claimChanged(before, now *resourceapi.ResourceClaim) {
	s.staleWaiting = s.staleWaiting || waits(before) || waits(now)
	for _, node := range nodesOf(before) {
		delete(s.claimsOf[node], before.Namespace+"/"+before.Name)
		s.stale[node] = true
	}
	for _, node := range nodesOf(now) {
		put(s.claimsOf, node, now.Namespace+"/"+now.Name, now)
		s.stale[node] = true
	}
}

func waits(c *resourceapi.ResourceClaim) bool { return c != nil && c.Status.Allocation == nil }

// nodesOf returns the nodes whose devices a claim holds.
func nodesOf(c *resourceapi.ResourceClaim) []string {
	if c == nil || waits(c) {
		return nil
	}
	var out []string
	for _, r := range c.Status.Allocation.Devices.Results {
		out = append(out, r.Pool)
	}
	return out
}

func put[T any](of map[string]map[string]T, node, key string, o T) {
	if of[node] == nil {
		of[node] = map[string]T{}
	}
	of[node][key] = o
}

// signal wakes Run. The lock is held.
func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Snapshot returns the newest snapshot.
func (s *Store) Snapshot() *overview.Snapshot { return s.snapshot.Load() }

// Expected returns the kinds that were neither read nor refused yet.
func (s *Store) Expected() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.expected))
}

// Subscribe returns a channel that gets a value after each new snapshot. Who is slow misses some.
// The caller ends the subscription.
func (s *Store) Subscribe() (changes <-chan struct{}, end func()) { return s.listeners.subscribe("") }

// note notes that a kind cannot be read, or, without a message, that it can.
func (s *Store) note(u text.Unread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal() // also if nothing changes: the last kind may have been read
	before := s.unread[u.Resource]
	delete(s.expected, u.Resource)
	delete(s.unread, u.Resource)
	if u.Message != "" {
		s.unread[u.Resource] = u
	}
	if before == s.unread[u.Resource] {
		return
	}
	s.allStale = s.allStale || u.Resource == read.Claims.Resource
	s.staleWaiting = s.staleWaiting || u.Resource == read.Claims.Resource || u.Resource == read.Pods.Resource
}
