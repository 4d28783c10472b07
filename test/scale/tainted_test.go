package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestTainted(t *testing.T) {
	s := newTainted()
	s.set("a", "slice 1", true)
	s.set("a", "slice 2", true)
	s.set("b", "slice 3", true)
	now, most, err := s.seen()
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, []int{now, most}, "nodes, not slices")

	s.set("a", "slice 1", false)
	now, _, _ = s.seen()
	assert.Equal(t, 2, now, "one of its slices is left")
	s.set("a", "slice 2", false)
	s.set("c", "slice 4", true)
	s.set("b", "slice 3", false)
	s.set("b", "slice 3", false)
	s.set("d", "never there", false)
	now, most, _ = s.seen()
	assert.Equal(t, []int{1, 2}, []int{now, most})
}

func TestTakeNode(t *testing.T) {
	s := newTainted()
	node := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, step := range []struct {
		state v1beta1.State
		there bool
		want  int
	}{
		{v1beta1.Failed, true, 0}, {v1beta1.Tainted, true, 1}, {v1beta1.Applying, true, 1}, {v1beta1.Idle, true, 0},
		{v1beta1.Draining, true, 1}, {v1beta1.Draining, false, 0},
	} {
		node.Status.State, node.Status.Switch = step.state, &v1beta1.Switch{GPUs: []string{"gpu"}}
		s.takeNode(node, step.there)
		now, _, _ := s.seen()
		assert.Equal(t, step.want, now, step.state)
	}
}

// What was missed must not pass for nothing.
func TestAWatchThatEnds(t *testing.T) {
	s := newTainted()
	w := watch.NewFake()
	taken := make(chan watch.EventType, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(t.Context(), w, func(e watch.Event) { taken <- e.Type })
	}()
	w.Add(&v1beta1.GPUNode{})
	assert.Equal(t, watch.Added, <-taken)
	w.Error(&metav1.Status{Message: "too old"})
	<-done
	_, _, err := s.seen()
	require.ErrorContains(t, err, "not every taint was seen")

	quiet := newTainted()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	quiet.follow(ctx, watch.NewFake(), func(watch.Event) {})
	_, _, err = quiet.seen()
	require.NoError(t, err)
}
