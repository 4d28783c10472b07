package waiting

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
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
	// users are the pods by the names of their claims.
	users map[types.NamespacedName]map[types.NamespacedName]bool
}

// waiting is a pod that waits.
type waiting struct {
	uid types.UID
	// since is when it was first seen to wait.
	since time.Time
	// shape is the key of what it asks for, empty as long as that is not known.
	shape  string
	claims []types.NamespacedName
	// told is the last answer that it was told.
	told why.Answer
	// answer is the present one if no node decides about it.
	answer why.Answer
}

// shape is what pods ask for: those of one shape fit on the same nodes.
type shape struct {
	// pod and claims are of one of them.
	pod    *corev1.Pod
	claims []resourceapi.ResourceClaim
	asks   []why.Ask
	// certain: it is certain that they ask for our devices.
	certain bool
	pods    map[types.NamespacedName]bool
	// nodes are the answers about nodes; a node that is not there is to be judged.
	nodes map[string]why.Answer
}

// fits tells whether a node other than one has room.
func (s *shape) fits(but string) bool {
	for name, a := range s.nodes {
		if a == why.None && name != but {
			return true
		}
	}
	return false
}

// counts counts the nodes by answer.
func (s *shape) counts() map[why.Answer]int {
	out := map[why.Answer]int{}
	for _, a := range s.nodes {
		out[a]++
	}
	return out
}

func newMemory() *memory {
	return &memory{
		pods: map[types.NamespacedName]*waiting{}, shapes: map[string]*shape{}, users: map[types.NamespacedName]map[types.NamespacedName]bool{},
	}
}

// see notes that a pod waits, and says since when it has.
func (m *memory) see(pod *corev1.Pod, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if p := m.pods[key]; p != nil && p.uid == pod.UID {
		return p.since
	}
	m.drop(key)
	m.pods[key] = &waiting{uid: pod.UID, since: now}
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
	delete(m.pods, key)
}

// leave takes a pod out of its shape and its claims.
func (m *memory) leave(key types.NamespacedName, p *waiting) {
	if s := m.shapes[p.shape]; s != nil {
		delete(s.pods, key)
		if len(s.pods) == 0 {
			delete(m.shapes, p.shape)
		}
	}
	p.shape = ""
	for _, c := range p.claims {
		delete(m.users[c], key)
		if len(m.users[c]) == 0 {
			delete(m.users, c)
		}
	}
	p.claims = nil
}

// put says what a pod asks for. It tells whether nobody has asked for that before, so that all nodes are
// to be judged.
func (m *memory) put(key types.NamespacedName, name string, s *shape, claims []types.NamespacedName) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil {
		return false
	}
	if p.shape != name {
		m.leave(key, p)
	}
	p.shape, p.answer, p.claims = name, why.None, claims
	for _, c := range claims {
		if m.users[c] == nil {
			m.users[c] = map[types.NamespacedName]bool{}
		}
		m.users[c][key] = true
	}
	if name == "" {
		return false
	}
	if m.shapes[name] == nil {
		m.shapes[name], first = s, true
	}
	m.shapes[name].pods[key] = true
	return first
}

// decided sets the answer for a pod about which no node decides.
func (m *memory) decided(key types.NamespacedName, a why.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[key]; p != nil {
		p.answer = a
	}
}

// toJudge are the shapes that a node is to be judged for. Nodes are not judged for pods that have room
// elsewhere.
func (m *memory) toJudge(node string) map[string]*shape {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]*shape{}
	for name, s := range m.shapes {
		if s.fits(node) {
			delete(s.nodes, node)
			continue
		}
		out[name] = s
	}
	return out
}

// judged sets the answer of a node for a shape. It tells whether other nodes are to be judged now, because
// none has room any more.
func (m *memory) judged(name, node string, a why.Answer) (others bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shapes[name]
	if s == nil {
		return false
	}
	before, known := s.nodes[node]
	s.nodes[node] = a
	return known && before == why.None && a != why.None && !s.fits("")
}

// gone removes a node. It tells whether other nodes are to be judged now, because none has room any more.
func (m *memory) gone(node string) (others bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.shapes {
		a, known := s.nodes[node]
		delete(s.nodes, node)
		others = others || known && a == why.None && !s.fits("")
	}
	return others
}

// idle tells whether no pod waits for a node.
func (m *memory) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.shapes) == 0
}

// news are what pods are to be told.
type news struct {
	pod    types.NamespacedName
	uid    types.UID
	answer why.Answer
	note   string
	// again: the pod was told something else before.
	again bool
}

// news lists the pods of shapes that all nodes have been judged for and whose answer is another than they
// were told. It counts them as told.
func (m *memory) news(nodes []string) []news {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []news
	for _, name := range slices.Sorted(maps.Keys(m.shapes)) {
		s := m.shapes[name]
		unjudged := func(n string) bool { _, ok := s.nodes[n]; return !ok }
		if len(s.nodes) < len(nodes) || s.fits("") || slices.ContainsFunc(nodes, unjudged) {
			continue
		}
		counts := s.counts()
		a := why.Common(counts)
		if a == why.NoSuchDevice && !s.certain {
			continue
		}
		for key := range s.pods {
			if p := m.pods[key]; p.told != a {
				out = append(out, news{key, p.uid, a, why.Note(key.Name, s.asks, counts), p.told != why.None})
				p.told = a
			}
		}
	}
	return out
}

// told notes what a pod is told about which no node decides. It returns nil if it was told that before.
func (m *memory) told(key types.NamespacedName, a why.Answer, note string) []news {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil || p.told == a {
		return nil
	}
	n := news{key, p.uid, a, note, p.told != why.None}
	p.told = a
	return []news{n}
}

// untold takes back that a pod was told something.
func (m *memory) untold(n news) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[n.pod]; p != nil && p.uid == n.uid && p.told == n.answer {
		p.told = why.None
	}
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

// answers counts the pods by the answer that they have been told.
func (m *memory) answers() map[why.Answer]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[why.Answer]int{}
	for _, p := range m.pods {
		a := p.answer
		if s := m.shapes[p.shape]; s != nil && a == why.None {
			a = p.told
			if s.fits("") {
				a = why.None
			}
		}
		if a != why.None {
			out[a]++
		}
	}
	return out
}
