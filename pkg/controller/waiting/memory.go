package waiting

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/why"
)

// memory is what is known of the pods that wait.
type memory struct {
	// mu guards what follows.
	mu sync.Mutex
	// pods are those that are looked after, shapes what they ask for.
	pods   map[types.NamespacedName]*waiting
	shapes map[string]*shape
	// shapesBy counts the shapes by the namespace that asked first.
	shapesBy map[string]int
	// users are the pods by the names of their claims.
	users map[types.NamespacedName]map[types.NamespacedName]bool
	// nodes are those with GPUs.
	nodes fleet
	// outbox has the pods to tell something. It may have some that no longer need it. wake says that there
	// is one more.
	outbox outbox
	wake   chan struct{}
	// limits are how many shapes there may be, and patience is how long judging them may take.
	limits   limits
	patience patience
}

// limits bound what tenants can have the controller remember and judge.
type limits struct{ shapes, perNamespace int }

var defaultLimits = limits{shapes: 200, perNamespace: 20}

// waiting is a pod that waits.
type waiting struct {
	uid types.UID
	// since is when it was first seen to wait.
	since time.Time
	// shape is the key of what it asks for, empty as long as that is not known.
	shape  string
	claims []types.NamespacedName
	// answer is the present one if no node decides about it, note its text.
	answer why.Answer
	note   string
	// leftOut: it gets no event, because pods ask for too many different things.
	leftOut bool
	// parked counts how often what it asks for was parked.
	parked int
	// told is what it was told last, in this event.
	told  why.Answer
	event written
}

func newMemory() *memory {
	return &memory{
		pods: map[types.NamespacedName]*waiting{}, shapes: map[string]*shape{}, shapesBy: map[string]int{},
		users: map[types.NamespacedName]map[types.NamespacedName]bool{}, limits: defaultLimits, patience: defaultPatience,
		nodes: fleet{number: map[string]int{}, dirty: map[string]bool{}}, wake: make(chan struct{}, 1),
	}
}

// see notes that a pod waits, and says since when it has.
func (m *memory) see(key types.NamespacedName, uid types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[key]; p != nil && p.uid == uid {
		return p.since
	}
	m.drop(key)
	m.pods[key] = &waiting{uid: uid, since: now}
	return now
}

// forget drops a pod that no longer waits.
func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
}

func (m *memory) drop(key types.NamespacedName) {
	p := m.pods[key]
	if p == nil {
		return
	}
	m.leave(key, p)
	m.use(key, p, nil)
	delete(m.pods, key)
}

// leave takes a pod out of its shape.
func (m *memory) leave(key types.NamespacedName, p *waiting) {
	s := m.shapes[p.shape]
	if s == nil {
		return
	}
	delete(s.pods, key)
	if len(s.pods) == 0 {
		delete(m.shapes, p.shape)
		if m.shapesBy[s.by]--; m.shapesBy[s.by] == 0 {
			delete(m.shapesBy, s.by)
		}
	}
	p.shape = ""
}

// use sets the claims of a pod.
func (m *memory) use(key types.NamespacedName, p *waiting, claims []types.NamespacedName) {
	for _, c := range p.claims {
		delete(m.users[c], key)
		if len(m.users[c]) == 0 {
			delete(m.users, c)
		}
	}
	p.claims = claims
	for _, c := range claims {
		if m.users[c] == nil {
			m.users[c] = map[types.NamespacedName]bool{}
		}
		m.users[c][key] = true
	}
}

// uses notes the claims that a pod names. If they change, it is looked at again.
func (m *memory) uses(key types.NamespacedName, claims []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[key]; p != nil {
		m.use(key, p, claims)
	}
}

// decided sets the answer for a pod about which no node decides: None if it does not wait for our devices.
func (m *memory) decided(key types.NamespacedName, a why.Answer, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil {
		return
	}
	m.leave(key, p)
	p.answer, p.note, p.leftOut = a, note, false
	if a != why.None {
		m.post(key)
	}
}

// join has a pod share a shape that there is. Otherwise it tells whether there may be one more; if not,
// the pod is left out.
func (m *memory) join(key types.NamespacedName, name string) (joined, may bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil {
		return false, false
	}
	if p.shape != name {
		m.leave(key, p)
	}
	p.answer, p.note, p.leftOut = why.None, "", false
	if s := m.shapes[name]; s != nil {
		s.attach(key, p)
		m.post(key)
		return true, false
	}
	may = m.mayAdd(key.Namespace)
	p.leftOut = !may
	return false, may
}

func (m *memory) mayAdd(namespace string) bool {
	return len(m.shapes) < m.limits.shapes && m.shapesBy[namespace] < m.limits.perNamespace
}

// add adds a shape, for a pod. All nodes are to be judged for it.
func (m *memory) add(key types.NamespacedName, wish *why.Wish) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addShape(key, wish)
}

// addParked adds a shape that took too long to read.
func (m *memory) addParked(key types.NamespacedName, wish *why.Wish, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addShape(key, wish)
	if s := m.shapes[wish.Key]; s != nil && !s.parked() {
		m.park(s, now)
	}
}

func (m *memory) addShape(key types.NamespacedName, wish *why.Wish) {
	if p := m.pods[key]; p != nil && m.shapes[wish.Key] == nil {
		s := newShape(wish, key.Namespace)
		s.attach(key, p)
		m.shapes[wish.Key] = s
		m.shapesBy[key.Namespace]++
	}
}

// forNode is how long the judging of one node for a shape may take.
func (m *memory) forNode(s *shape) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.patience.after(s.parkedBefore).node
}

// forReading is how long reading what a pod asks for may take.
func (m *memory) forReading(key types.NamespacedName) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil {
		return m.patience.node
	}
	return m.patience.after(p.parked).node
}

// podsOf are the pods that name a claim.
func (m *memory) podsOf(claim types.NamespacedName) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.users[claim]))
}

// all are all pods that wait.
func (m *memory) all() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.pods))
}

// idle tells whether no pod waits for a node.
func (m *memory) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.shapes) == 0
}

// The reasons why pods get no event.
const (
	tooMany = "TooMany"
	tooLong = "TooLong"
)

// numbers count the pods by their answers, and those that get no event by the reason.
func (m *memory) numbers() (byAnswer map[why.Answer]int, left map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byAnswer, left = map[why.Answer]int{}, map[string]int{tooMany: 0, tooLong: 0}
	for _, p := range m.pods {
		if p.answer != why.None {
			byAnswer[p.answer]++
		}
		if p.leftOut {
			left[tooMany]++
		}
	}
	for _, s := range m.shapes {
		if s.answer != why.None {
			byAnswer[s.answer] += len(s.pods)
		}
		if s.parked() {
			left[tooLong] += len(s.pods)
		}
	}
	return byAnswer, left
}

// post has a pod told what there is to tell.
func (m *memory) post(key types.NamespacedName) {
	m.outbox.add(key)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
