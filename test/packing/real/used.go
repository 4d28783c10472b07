package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// markPatience is how long the attribute of the last GPU may take.
const markPatience = time.Minute

// gpus are the slices of the GPUs by their devices. The devices of a GPU have a slice of their
// own, so its name stands for the GPU.
type gpus map[device]string

type device struct{ pool, name string }

func gpusOf(published []*resourceapi.ResourceSlice) gpus {
	all := gpus{}
	for _, slice := range published {
		for _, d := range slice.Spec.Devices {
			all[device{slice.Spec.Pool.Name, d.Name}] = slice.Name
		}
	}
	return all
}

// used are the GPUs of which claims hold a device.
func (g gpus) used(claims []*resourceapi.ResourceClaim) sets.Set[string] {
	used := sets.New[string]()
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			used.Insert(g[device{result.Pool, result.Device}])
		}
	}
	return used
}

// mark writes or removes the attribute of all devices of a slice.
func mark(slice *resourceapi.ResourceSlice, used bool) {
	for i := range slice.Spec.Devices {
		if !used {
			delete(slice.Spec.Devices[i].Attributes, usedAttribute)
			continue
		}
		slice.Spec.Devices[i].Attributes[usedAttribute] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
	}
}

// marks write the attribute when a GPU becomes used or unused. A plugin would do so when a claim
// is prepared, which is later.
type marks struct {
	core    kubernetes.Interface
	gpus    gpus
	claims  resourcelisters.ResourceClaimLister
	changed chan struct{}
	ended   sync.WaitGroup

	// mu protects what follows.
	mu     sync.Mutex
	marked sets.Set[string]
	failed error
}

// startMarks marks GPUs until ctx ends.
func startMarks(ctx context.Context, c *controlplane.Cluster, g gpus) (*marks, error) {
	factory := informers.NewSharedInformerFactory(c.Core, 0)
	claims := factory.Resource().V1().ResourceClaims()
	m := &marks{core: c.Core, gpus: g, claims: claims.Lister(), changed: make(chan struct{}, 1), marked: sets.New[string]()}
	note := func(any) {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
	if _, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, o any) { note(o) }, DeleteFunc: note,
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	m.ended.Go(func() {
		for {
			select {
			case <-m.changed:
				m.write(ctx)
			case <-ctx.Done():
				factory.Shutdown()
				return
			}
		}
	})
	return m, nil
}

// write writes the slices whose GPUs have become used or unused.
func (m *marks) write(ctx context.Context) {
	claims, err := m.claims.List(labels.Everything())
	used := m.gpus.used(claims)
	m.mu.Lock()
	changed := used.SymmetricDifference(m.marked).UnsortedList()
	m.mu.Unlock()
	if err == nil {
		err = controlplane.ForAll(ctx, changed, func(ctx context.Context, name string) error {
			slice, err := m.core.ResourceV1().ResourceSlices().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			mark(slice, used.Has(name))
			_, err = m.core.ResourceV1().ResourceSlices().Update(ctx, slice, metav1.UpdateOptions{})
			return err
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marked = used
	if m.failed == nil {
		m.failed = err
	}
}

// await waits until exactly these GPUs are marked.
func (m *marks) await(ctx context.Context, used sets.Set[string]) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, markPatience, true, func(context.Context) (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.marked.Equal(used), m.failed
	})
	if err != nil {
		return fmt.Errorf("mark the GPUs in use: %w", err)
	}
	return nil
}
