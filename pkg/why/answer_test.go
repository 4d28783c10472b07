package why_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/why"
)

// The answer for a pod is the one that says most.
func TestCommon(t *testing.T) {
	for _, test := range []struct {
		nodes map[why.Answer]int
		want  why.Answer
		note  string
	}{
		{nil, why.NoSuchDevice, "Waits for 1 × x. No node publishes GPUs. For details: kubectl tranche why p"},
		{map[why.Answer]int{why.NoSuchDevice: 1}, why.NoSuchDevice, "Waits for 1 × x. The only node with GPUs has no such device. For details: kubectl tranche why p"},
		{map[why.Answer]int{why.NoSuchDevice: 3, why.DevicesHeld: 1, why.DevicesTainted: 2}, why.DevicesHeld,
			"Waits for 1 × x. Of 6 nodes with GPUs, 1 has none free, 2 have tainted ones only, 3 have no such device. For details: kubectl tranche why p"},
		{map[why.Answer]int{why.NoSuchDevice: 3, why.NodesSwitching: 1}, why.NodesSwitching, ""},
		{map[why.Answer]int{why.DevicesHeld: 3, why.None: 1}, why.None, ""},
	} {
		assert.Equal(t, test.want, why.Common(test.nodes))
		if test.note != "" {
			assert.Equal(t, test.note, why.Note("p", []why.Ask{{Text: "1 × x"}}, test.nodes))
		}
	}
}

// One node at a time gives the same answer as all of them together.
func TestOnNode(t *testing.T) {
	w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "L4-24GB", 1).node("node-c", "H100-80GB", 1)
	w.hold("node-a", "team-b", "train", wholeGPU, 1)
	w.pod(request("gpu", small))
	nodes := map[why.Answer]int{}
	for _, name := range []string{"node-a", "node-b", "node-c", "node-x"} {
		in := w.in
		in.Slices = nil
		for _, s := range w.in.Slices {
			if *s.Spec.NodeName == name {
				in.Slices = append(in.Slices, s)
			}
		}
		nodes[why.OnNode(t.Context(), in, name)]++
	}
	require.Equal(t, map[why.Answer]int{why.DevicesHeld: 1, why.NoSuchDevice: 1, why.None: 1, why.GPUsUnusable: 1}, nodes)

	waits, certain := why.Ours(t.Context(), w.in)
	assert.True(t, waits)
	assert.True(t, certain)
	w.in.Classes = append(w.in.Classes, resourceapi.DeviceClass{})
	w.in.Classes[len(w.in.Classes)-1].Name = "nic"
	w.claim().Spec.Devices.Requests[0].Exactly.DeviceClassName = "nic"
	waits, certain = why.Ours(t.Context(), w.in)
	assert.True(t, waits)
	assert.False(t, certain, "it may be of another driver")
}

// What the controller needs for a node with eight GPUs that are held.
func BenchmarkOnNode(b *testing.B) {
	w := newWorld(b).node("node-a", "H100-80GB", 8).hold("node-a", "team-b", "train", small, 56)
	w.pod(request("gpu", small))
	b.ReportAllocs()
	for b.Loop() {
		if a := why.OnNode(b.Context(), w.in, "node-a"); a != why.DevicesHeld {
			b.Fatal(a)
		}
	}
}
