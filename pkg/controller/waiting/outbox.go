package waiting

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// outbox has the pods that are to be told something. Namespaces take turns, so that the many pods of one
// do not delay the others, and the pod that was added last comes first. A namespace where events cannot
// be written is left alone for a while.
type outbox struct {
	of map[string]*box
	// turns are the namespaces, the next one first.
	turns []string
}

// box has the pods of a namespace.
type box struct {
	pods     []types.NamespacedName
	has      map[types.NamespacedName]bool
	failures int
	// after is when it is tried again.
	after time.Time
}

const firstDelay, longestDelay = 2 * time.Second, 10 * time.Minute

func (o *outbox) add(pod types.NamespacedName) {
	if o.of == nil {
		o.of = map[string]*box{}
	}
	b := o.of[pod.Namespace]
	if b == nil {
		b = &box{has: map[types.NamespacedName]bool{}}
		o.of[pod.Namespace] = b
		o.turns = append(o.turns, pod.Namespace)
	}
	if !b.has[pod] {
		b.has[pod] = true
		b.pods = append(b.pods, pod)
	}
}

// next takes a pod out. If there is none now, wait is when there may be one, 0 if that is not known.
func (o *outbox) next(now time.Time) (pod types.NamespacedName, ok bool, wait time.Duration) {
	for range len(o.turns) {
		namespace := o.turns[0]
		o.turns = o.turns[1:]
		b := o.of[namespace]
		left := b.after.Sub(now)
		if len(b.pods) == 0 && left <= 0 {
			delete(o.of, namespace)
			continue
		}
		o.turns = append(o.turns, namespace)
		switch {
		case len(b.pods) == 0:
		case left > 0 && (wait == 0 || left < wait):
			wait = left
		case left <= 0:
			last := len(b.pods) - 1
			pod, b.pods = b.pods[last], b.pods[:last]
			delete(b.has, pod)
			return pod, true, 0
		}
	}
	return pod, false, wait
}

// failed puts a pod back whose event could not be written.
func (o *outbox) failed(pod types.NamespacedName, now time.Time) {
	o.add(pod)
	b := o.of[pod.Namespace]
	b.after = now.Add(min(firstDelay<<min(b.failures, 20), longestDelay))
	b.failures++
}

func (o *outbox) succeeded(namespace string) {
	if b := o.of[namespace]; b != nil {
		b.failures = 0
	}
}
