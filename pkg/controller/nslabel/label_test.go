package nslabel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
)

// A value that means nothing is told once, and again after it was right, or the namespace was made anew.
func TestValuesThatMeanNothing(t *testing.T) {
	to := events.NewFakeRecorder(1)
	var l Label
	check := func(namespace, value string) string {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"key": value}}}
		l.Check(to, n, "key", "by the chart's values, ", "on", "off")
		select {
		case told := <-to.Events:
			return told
		default:
			return ""
		}
	}
	says := func(value string) string {
		return "Warning LabelIgnored The label key=" + value + " of this namespace has no effect: by the chart's values, the value can be on, off"
	}
	assert.Empty(t, check("a", ""))
	assert.Empty(t, check("a", "off"))
	assert.Equal(t, says("x"), check("a", "x"))
	assert.Empty(t, check("a", "x"))
	assert.Equal(t, says("x"), check("b", "x"))
	assert.Equal(t, says("y"), check("a", "y"))
	assert.Empty(t, check("a", "on"))
	assert.Equal(t, says("y"), check("a", "y"))
	l.Forget("a")
	assert.Equal(t, says("y"), check("a", "y"))
	assert.Empty(t, check("b", "x"))
}
