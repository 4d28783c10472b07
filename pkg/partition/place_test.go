package partition

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

var errScripted = errors.New("scripted failure")

// place is a node whose hardware, claims and files outlive the driver.
type place struct {
	t        *testing.T
	file     string
	hardware *fakeHardware
	claims   *fakeClaims
	// profiles are what wishes come to, by name and GPU; a GPU of which a profile says
	// nothing has the zero shape.
	profiles map[string]map[string]profile.Layout
	// there is what the resolver was told last.
	there       map[string][]gpu.Partition
	unresolved  error
	memoryModes bool
}

func newPlace(t *testing.T, addresses ...string) *place {
	h := &fakeHardware{}
	for _, a := range addresses {
		h.gpus = append(h.gpus, newGPU(a))
	}
	return &place{
		t: t, file: filepath.Join(memory.TempDir(t), "profile.json"), hardware: h, claims: &fakeClaims{},
		profiles: map[string]map[string]profile.Layout{}, memoryModes: true,
	}
}

// startPlace starts the driver on a new place.
func startPlace(t *testing.T, addresses ...string) (*place, *Node) {
	t.Helper()
	p := newPlace(t, addresses...)
	return p, p.start()
}

// failing makes those calls fail that name one of parts.
func failing(parts ...string) func(call string) error {
	return func(call string) error {
		if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(call, part) }) {
			return errScripted
		}
		return nil
	}
}

// profile defines what a profile comes to.
func (p *place) profile(name string, layouts map[string]profile.Layout) v1beta1.ProfileSnapshot {
	p.profiles[name] = layouts
	return wish(name)
}

func wish(name string) v1beta1.ProfileSnapshot {
	if name == "" {
		return v1beta1.ProfileSnapshot{}
	}
	return v1beta1.ProfileSnapshot{ProfileName: name, Source: v1beta1.FromSpec, Hash: "hash of " + name}
}

func (p *place) resolve(w v1beta1.ProfileSnapshot, gpus []gpu.GPU, there func(string) profile.Existing) (map[string]profile.Desired, error) {
	if p.unresolved != nil {
		return nil, p.unresolved
	}
	p.there = map[string][]gpu.Partition{}
	all := map[string]profile.Desired{}
	memory := "" // is that of all
	for _, layout := range p.profiles[w.ProfileName] {
		memory = cmp.Or(memory, layout.Memory)
	}
	for _, c := range gpus {
		p.there[c.PCIAddress] = there(c.PCIAddress).Partitions
		g := profile.Default()
		g.Profile, g.Layout = w.ProfileName, p.profiles[w.ProfileName][c.PCIAddress]
		if c.Vendor == gpu.AMD && c.PCIAddress != mi210 {
			g.Layout.Memory = memory
		}
		all[c.PCIAddress] = g
	}
	return all, nil
}

// start restarts the driver over what is there.
func (p *place) start() *Node {
	p.t.Helper()
	n, err := p.open()
	require.NoError(p.t, err)
	return n
}

func (p *place) open() (*Node, error) {
	state, err := OpenState(p.file)
	return New(Config{
		State: state, GPUs: p.hardware.snapshot, Driver: p.hardware.driver, Claims: p.claims, Resolve: p.resolve,
		MemoryModes: p.memoryModes,
	}), err
}

// follow makes the node follow a wish.
func (p *place) follow(n *Node, w v1beta1.ProfileSnapshot) {
	p.t.Helper()
	require.Equal(p.t, v1beta1.Task{Phase: v1beta1.TaskDone}, n.Apply(p.t.Context(), w, false))
	p.follows(n, w)
}

// follows checks that nothing is left to do, for the driver and for the next one.
func (p *place) follows(n *Node, w v1beta1.ProfileSnapshot) {
	p.t.Helper()
	for _, n := range []*Node{n, p.start()} {
		require.Equal(p.t, w, n.Applied())
		require.Nil(p.t, n.journal().Applying)
		require.Equal(p.t, v1beta1.Task{Phase: v1beta1.TaskPlanned, Changes: []v1beta1.GPUChange{}}, n.Plan(p.t.Context(), w))
		require.Empty(p.t, n.journal().Ours)
	}
}
