// Package nslabel warns about labels of namespaces whose values mean nothing.
package nslabel

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/tranche-dev/tranche/api/names"
)

// Label remembers the last value of a label that meant nothing, by namespace. The zero value is ready.
type Label struct {
	mu      sync.Mutex
	unknown map[string]string
}

// Check writes an event on the namespace, once for each value, if the label has none of values. by says
// what decides about them: "by the chart's values, ", or empty.
func (l *Label) Check(to events.EventRecorder, n *corev1.Namespace, key, by string, values ...string) {
	value := n.Labels[key]
	if value == "" || slices.Contains(values, value) {
		l.Forget(n.Name)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unknown[n.Name] == value {
		return
	}
	if l.unknown == nil {
		l.unknown = map[string]string{}
	}
	l.unknown[n.Name] = value
	to.Eventf(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID},
	}, nil, corev1.EventTypeWarning, names.EventLabelIgnored, "ReadLabel",
		"The label %s=%s of this namespace has no effect: %sthe value can be %s", key, value, by, strings.Join(values, ", "))
}

// Forget forgets a namespace that is gone.
func (l *Label) Forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unknown, namespace)
}
