package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// features are the gates that kube-scheduler has on by default.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true,
}

// Scheduler gives devices of one node to claims, and remembers what it gave.
type Scheduler struct {
	node    string
	slices  []*resourceapi.ResourceSlice
	classes classes
	held    structured.AllocatedState
	cache   *cel.Cache
}

// NewScheduler is for a node with these slices.
func NewScheduler(node string, published []resourceapi.ResourceSlice, all []*resourceapi.DeviceClass) *Scheduler {
	s := &Scheduler{
		node: node, classes: all, cache: cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}),
		held: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
	}
	for i := range published {
		s.slices = append(s.slices, &published[i])
	}
	return s
}

// Claim asks for one device of a class.
func Claim(namespace, name, class string) *resourceapi.ResourceClaim {
	request := resourceapi.DeviceRequest{Name: "device", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
	}
}

// Allocate allocates a claim; nil if nothing that is free fits.
func (s *Scheduler) Allocate(ctx context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.AllocationResult, error) {
	allocator, err := structured.NewAllocator(ctx, features, s.held, s.classes, s.slices, s.cache)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node, Labels: map[string]string{corev1.LabelHostname: s.node}}}
	results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(results) == 0 {
		return nil, err
	}
	for _, r := range results[0].Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			s.held.AllocatedDevices.Insert(id)
			continue
		}
		s.held.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		s.held.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	return &results[0], nil
}

// classes are DeviceClasses as the allocator looks them up.
type classes []*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("there is no DeviceClass %s", name)
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }
