package nodetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/clientfake"
)

// NodeName is the node of NewAPI.
const NodeName = "node-a"

// NewAPI is an API server with one node. It does what the plain fake does not:
// field selectors of ResourceSlices, and names for those that have none.
func NewAPI(objects ...runtime.Object) *fake.Clientset {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName, UID: "node-uid"}}
	client, objectsOf := newClientset(append(objects, node))
	var version atomic.Int64
	OnSliceWrite(client, func(slice *resourceapi.ResourceSlice) error {
		slice.ResourceVersion = fmt.Sprint(version.Add(1))
		if slice.Name == "" {
			slice.Name = slice.GenerateName + slice.ResourceVersion
		}
		return nil
	})
	// What is only tried is not kept.
	clientfake.React(&client.Fake, "create", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(k8stesting.CreateActionImpl)
		return ok && len(create.CreateOptions.DryRun) > 0, create.Object, nil
	})
	clientfake.React(&client.Fake, "list", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		found, err := objectsOf.List(action.GetResource(), resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), "")
		if err != nil {
			return true, nil, err
		}
		selector := action.(k8stesting.ListAction).GetListRestrictions().Fields //nolint:forcetypeassert // it is one of "list"
		list := found.(*resourceapi.ResourceSliceList).DeepCopy()               //nolint:forcetypeassert // it is a list of slices
		var items []resourceapi.ResourceSlice
		for _, s := range list.Items {
			if selects(selector, &s) {
				items = append(items, s)
			}
		}
		list.Items = items
		return true, list, nil
	})
	client.PrependWatchReactor("resourceslices", func(action k8stesting.Action) (bool, watch.Interface, error) {
		_, all, err := clientfake.WatchReaction(objectsOf)(action)
		if err != nil {
			return true, nil, err
		}
		selector := action.(k8stesting.WatchAction).GetWatchRestrictions().Fields //nolint:forcetypeassert // it is a watch
		return true, watch.Filter(all, func(e watch.Event) (watch.Event, bool) {
			s, ok := e.Object.(*resourceapi.ResourceSlice)
			return e, !ok || selects(selector, s)
		}), nil
	})
	return client
}

// kinds are those that the plugin has to do with.
var kinds = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, resourceapi.AddToScheme, eventsv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
})

// newClientset is fake.NewClientset without what would be most of the work of these
// tests: it has few kinds, and managed fields for claims only, whose status is applied,
// by no schema (that of all kinds takes each process a second to read).
func newClientset(objects []runtime.Object) (*fake.Clientset, k8stesting.ObjectTracker) {
	decoder := serializer.NewCodecFactory(kinds()).UniversalDecoder()
	plain := clientfake.Complete(k8stesting.NewObjectTracker(kinds(), decoder))
	applied := clientfake.Complete(k8stesting.NewFieldManagedObjectTracker(kinds(), decoder, managedfields.NewDeducedTypeConverter()))
	client := &fake.Clientset{}
	serve := func(resource string, tracker k8stesting.ObjectTracker) {
		client.AddReactor("*", resource, k8stesting.ObjectReaction(tracker))
		client.AddWatchReactor(resource, clientfake.WatchReaction(tracker))
	}
	serve("resourceclaims", applied)
	serve("*", plain)
	for _, o := range objects {
		tracker := plain
		if _, ok := o.(*resourceapi.ResourceClaim); ok {
			tracker = applied
		}
		utilruntime.Must(tracker.Add(o))
	}
	return client, plain
}

func selects(selector fields.Selector, s *resourceapi.ResourceSlice) bool {
	node := ""
	if s.Spec.NodeName != nil {
		node = *s.Spec.NodeName
	}
	return selector == nil || selector.Matches(fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   s.Spec.Driver,
		"spec.pool.name":                          s.Spec.Pool.Name,
		metav1.ObjectNameField:                    s.Name,
	})
}

// SlicesOf lists what a driver has published.
func SlicesOf(t *testing.T, client *fake.Clientset, driver string) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	require.NoError(t, err)
	return list.Items
}

// Published lists the devices in our slices that take something of GPUs.
func Published(t *testing.T, client *fake.Clientset) []resourceapi.Device {
	t.Helper()
	var devices []resourceapi.Device
	for _, s := range SlicesOf(t, client, names.DriverName) {
		devices = append(devices, s.Spec.Devices...)
	}
	return slices.DeleteFunc(devices, func(d resourceapi.Device) bool { return gpu.IsMonitor(d.Name) })
}

// SliceWrites counts the calls that changed ResourceSlices.
func SliceWrites(client *fake.Clientset) int {
	n := 0
	for _, a := range client.Actions() {
		if create, ok := a.(k8stesting.CreateActionImpl); ok && len(create.CreateOptions.DryRun) > 0 {
			continue
		}
		if a.GetResource().Resource == "resourceslices" && a.GetVerb() != "list" && a.GetVerb() != "watch" && a.GetVerb() != "get" {
			n++
		}
	}
	return n
}

// AwaitEvent waits for an event on the node and returns its note.
func AwaitEvent(t *testing.T, client *fake.Clientset, reason, part string) string {
	t.Helper()
	return AwaitEventOn(t, client, "Node", NodeName, reason, part)
}

// AwaitEventOn waits for an event on any object and returns its note.
func AwaitEventOn(t *testing.T, client *fake.Clientset, kind, name, reason, part string) string {
	t.Helper()
	note := ""
	require.Eventually(t, func() bool {
		list, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Note, part) {
				note = e.Note
				return e.Regarding.Kind == kind && e.Regarding.Name == name
			}
		}
		return false
	}, Patience, Tick, "no event %s with %q", reason, part)
	return note
}

const (
	// Patience is how long a condition may take on a busy machine.
	Patience = 3 * time.Minute
	// Tick is the time between two looks.
	Tick = 40 * time.Millisecond
)

// Allocate puts a claim into the API server as the scheduler leaves it.
func Allocate(t *testing.T, client *fake.Clientset, uid string, devices ...string) *resourceapi.ResourceClaim {
	t.Helper()
	c := ClaimOf(uid, devices...)
	_, err := client.ResourceV1().ResourceClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// ClaimOf is a claim to which devices are allocated.
func ClaimOf(uid string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + uid}},
		},
	}
	for i, device := range devices {
		result := resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprintf("r%d", i), Driver: names.DriverName, Pool: names.PoolName(NodeName), Device: device,
		}
		if strings.HasSuffix(device, "-share") {
			result.ShareID = new(types.UID(fmt.Sprintf("share-%d%s", i, uid)))
			result.ConsumedCapacity = someOf(device)
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, result)
	}
	return c
}

// someOf is a part of a share device, such that two of them fit on any GPU.
func someOf(device string) map[resourceapi.QualifiedName]resource.Quantity {
	amount := map[resourceapi.QualifiedName]resource.Quantity{"clients": resource.MustParse("1")}
	if strings.HasSuffix(device, "-fraction-share") {
		amount["fraction"] = resource.MustParse("500m")
	} else {
		amount["memory"] = resource.MustParse("2000Mi")
	}
	return amount
}
