package allocator

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
)

// Grant is a claim that was allocated. It holds its devices until it is
// released.
type Grant struct {
	Claim  *resourceapi.ResourceClaim
	Result resourceapi.AllocationResult
}

// Devices are the names of the devices, one for each result.
func (g *Grant) Devices() []string {
	var names []string
	for _, result := range g.Result.Devices.Results {
		names = append(names, result.Device)
	}
	return names
}

// Scheduler allocates claims on one node at a time and remembers what it gave
// away, as kube-scheduler does. It is not safe for concurrent use.
type Scheduler struct {
	// Compiled has the expressions that were compiled. Schedulers may share one.
	Compiled *cel.Cache

	classes allocation.Classes
	slices  []*resourceapi.ResourceSlice
	held    []*Grant
}

// New makes a scheduler that sees these classes and slices.
func New(classes []*resourceapi.DeviceClass, published []*resourceapi.ResourceSlice) *Scheduler {
	s := &Scheduler{
		classes: allocation.Classes{},
		slices:  published,
		// The size that kube-scheduler gives its cache.
		Compiled: allocation.NewCache(10),
	}
	for _, class := range classes {
		s.classes[class.Name] = class
	}
	return s
}

// Publish replaces the slices that the scheduler sees. What was granted stays.
func (s *Scheduler) Publish(published []*resourceapi.ResourceSlice) { s.slices = published }

// Held lists what is granted and not released.
func (s *Scheduler) Held() []*Grant { return slices.Clone(s.held) }

// Allocate tries to satisfy a claim on a node. It returns nil when nothing that
// is free fits, and an error when the scheduler would give up with one.
func (s *Scheduler) Allocate(ctx context.Context, node string, claim *resourceapi.ResourceClaim) (*Grant, error) {
	allocator, err := structured.NewAllocator(ctx, allocation.Features, s.allocated(), s.classes, s.slices, s.Compiled)
	if err != nil {
		return nil, err
	}
	on := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}}
	results, err := allocator.Allocate(ctx, on, []*resourceapi.ResourceClaim{claim})
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, err
	}
	if len(results) == 0 {
		return nil, nil
	}
	grant := &Grant{Claim: claim, Result: results[0]}
	s.held = append(s.held, grant)
	return grant, nil
}

// Hold takes again what was granted before and is released, without asking.
func (s *Scheduler) Hold(grants ...*Grant) { s.held = append(s.held, grants...) }

// Release gives back what a claim holds.
func (s *Scheduler) Release(grant *Grant) {
	s.held = slices.DeleteFunc(s.held, func(g *Grant) bool { return g == grant })
}

// ReleaseAll gives back everything.
func (s *Scheduler) ReleaseAll() { s.held = nil }

func (s *Scheduler) allocated() structured.AllocatedState {
	state := allocation.Nothing()
	for _, grant := range s.held {
		allocation.Hold(state, grant.Result.Devices.Results)
	}
	return state
}
