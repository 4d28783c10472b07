// Command exhaustive shows how long kube-scheduler's allocator takes to find out that a claim does
// not fit on a node, against the number of free devices. It uses modules of Kubernetes only, so
// that it can be attached to an upstream issue:
//
//	go run ./test/allocator/exhaustive
//
// One node has n equal devices without counters, and a claim asks for n+1: by one request with a
// count, or by n+1 requests for one device each. Nothing fits, which follows from the number of
// devices that match. The allocator tries all 2^n sets of devices for the count, and all n!
// orders of them for the requests: it stops early only if the count exceeds 32, and it does not
// know that requests with the same class and selectors are interchangeable. With v0.37.2 on a
// core of a small machine, refusing 19 of 18 devices took 1 s and 22 of 21 took 7 s, and refusing
// 9 requests for 8 devices 0.4 s and 10 for 9 took 4 s. kube-scheduler does this for each node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	driver = "driver.example.com"
	node   = "node"
	class  = "devices"
)

// search is one allocation.
type search struct {
	took time.Duration
	// ended: the time was over first.
	ended bool
}

// ways are how a claim can ask for a number of devices.
var ways = []struct {
	name  string
	claim func(devices int) *resourceapi.ResourceClaim
}{
	{"one request, count n+1", func(n int) *resourceapi.ResourceClaim { return claim(request("all", int64(n+1))) }},
	{"n+1 requests", func(n int) *resourceapi.ResourceClaim {
		var all []resourceapi.DeviceRequest
		for i := range n + 1 {
			all = append(all, request(fmt.Sprintf("request-%d", i), 1))
		}
		return claim(all...)
	}},
}

func main() {
	limit := flag.Duration("limit", 10*time.Second, "how long one search may take. kube-scheduler's default for a node is 10s (filterTimeout of DynamicResources)")
	most := flag.Int("devices", 32, "the most devices to try")
	flag.Parse()
	for _, way := range ways {
		fmt.Printf("%s\n%8s  %12s\n", way.name, "devices", "time")
		for n := 4; n <= *most; n++ {
			s, err := allocate(n, way.claim(n), *limit)
			if err != nil {
				fmt.Fprintln(os.Stderr, "Error:", err)
				os.Exit(1)
			}
			if s.ended {
				fmt.Printf("%8d  more than %s\n\n", n, *limit)
				break
			}
			fmt.Printf("%8d  %12s\n", n, s.took.Round(10*time.Microsecond))
		}
	}
}

// allocate has the allocator try a claim that does not fit on a node with so many devices.
func allocate(devices int, claim *resourceapi.ResourceClaim, limit time.Duration) (search, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	features := structured.Features{PartitionableDevices: true, PrioritizedList: true, DeviceTaints: true, ConsumableCapacity: true}
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes{}, published(devices), cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		return search{}, err
	}
	start := time.Now()
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{claim})
	s := search{took: time.Since(start), ended: errors.Is(err, context.DeadlineExceeded)}
	switch {
	case s.ended || errors.Is(err, structured.ErrFailedAllocationOnNode):
		err = nil
	case err == nil && len(results) > 0:
		err = fmt.Errorf("%d devices were enough for one more", devices)
	}
	return s, err
}

// published is the slice of a node with equal devices.
func published(devices int) []*resourceapi.ResourceSlice {
	name := node
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &name,
			Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1, Generation: 1},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	return []*resourceapi.ResourceSlice{slice}
}

func claim(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

func request(name string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

// classes has one class, of all devices.
type classes struct{}

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	one, err := c.Get(class)
	return []*resourceapi.DeviceClass{one}, err
}
