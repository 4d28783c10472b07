package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
)

// witness records what the controller, the plugins and the scheduler write, to find
// evictions that no plan names and devices that are allocated twice.
type witness struct {
	// mu protects what follows.
	mu sync.Mutex
	// plans are the last plans that plugins made while their taints stood, by switch.
	plans map[string]plan
	// holds are the devices that each pod ever held by its claims.
	holds map[types.UID][]resourceapi.DeviceRequestAllocationResult
}

// plan is the second plan of a switch.
type plan struct {
	node  string
	gpus  []string
	keeps []string
}

// names reports whether the holder of a device must leave by the plan.
func (p plan) names(d resourceapi.DeviceRequestAllocationResult) bool {
	on := func(name string) bool { return d.Device == name || strings.HasPrefix(d.Device, name+"-") }
	return slices.ContainsFunc(p.gpus, on) && !slices.Contains(p.keeps, d.Device)
}

// watchSwitches records until the test ends.
func (s *suite) watchSwitches() *witness {
	s.t.Helper()
	w := &witness{plans: map[string]plan{}, holds: map[types.UID][]resourceapi.DeviceRequestAllocationResult{}}
	stop := make(chan struct{})
	s.t.Cleanup(sync.OnceFunc(func() { close(stop) }))

	nodes := cache.NewSharedIndexInformer(client.ListWatch(s.tranche.GPUNodes(), ""), &v1beta1.GPUNode{}, 0, nil)
	w.follow(s.t, nodes, func(o any) {
		if n, ok := o.(*v1beta1.GPUNode); ok {
			w.takePlan(n)
		}
	})
	go nodes.Run(stop)

	factory := informers.NewSharedInformerFactory(s.client, 0)
	claims := factory.Resource().V1().ResourceClaims().Informer()
	w.follow(s.t, claims, func(o any) {
		if c, ok := o.(*resourceapi.ResourceClaim); ok {
			w.takeClaim(c)
		}
	})
	factory.Start(stop)
	require.True(s.t, cache.WaitForCacheSync(stop, nodes.HasSynced, claims.HasSynced))
	return w
}

func (w *witness) follow(t *testing.T, informer cache.SharedIndexInformer, take func(any)) {
	t.Helper()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, now any) { take(now) },
	})
	require.NoError(t, err)
}

func (w *witness) takePlan(n *v1beta1.GPUNode) {
	if n.Status.Node == nil || n.Status.Node.Task == nil {
		return
	}
	task := n.Status.Node.Task
	if task.State != v1beta1.Tainted || task.Phase != v1beta1.TaskPlanned {
		return
	}
	p := plan{node: n.Name}
	for _, change := range task.Changes {
		p.gpus = append(p.gpus, change.GPU)
		p.keeps = append(p.keeps, change.KeptDevices...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans[n.Name+" "+task.SwitchID] = p
}

func (w *witness) takeClaim(c *resourceapi.ResourceClaim) {
	if c.Status.Allocation == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range c.Status.ReservedFor {
		w.holds[pod.UID] = c.Status.Allocation.Devices.Results
	}
}

// unnamed lists the pods that the controller evicted although no plan of their node
// names them, and counts the evictions.
func (s *suite) unnamed(w *witness) (evicted int, wrong []string) {
	s.t.Helper()
	list, err := s.client.EventsV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=EvictedForSwitch"})
	require.NoError(s.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list.Items {
		evicted++
		if e := &list.Items[i]; !w.explains(e) {
			wrong = append(wrong, fmt.Sprintf("%s (held %v): %s", e.Regarding.Name, w.holds[e.Regarding.UID], e.Note))
		}
	}
	return evicted, wrong
}

// explains reports whether a plan names a pod that was evicted. The caller holds the lock.
func (w *witness) explains(e *eventsv1.Event) bool {
	for _, d := range w.holds[e.Regarding.UID] {
		for _, p := range w.plans {
			if d.Pool == p.node && p.names(d) {
				return true
			}
		}
	}
	return false
}

// doubled finds GPUs of which more is allocated than there is, by the counters that the
// nodes publish at this moment. A device that is not published cannot be judged.
func (s *suite) doubled() (wrong []string) {
	s.t.Helper()
	claims, err := s.client.ResourceV1().ResourceClaims("").List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	times := map[string]int{}
	for i := range claims.Items {
		if a := claims.Items[i].Status.Allocation; a != nil {
			for _, r := range a.Devices.Results {
				if r.Driver == names.DriverName && !ptr.Deref(r.AdminAccess, false) {
					times[r.Pool+" "+r.Device]++
				}
			}
		}
	}
	for node := range soakProfiles {
		wrong = append(wrong, s.doubledOn(node, times)...)
	}
	return wrong
}

func (s *suite) doubledOn(node string, times map[string]int) (wrong []string) {
	s.t.Helper()
	free := map[string]int64{}
	published := s.slices(node)
	for i := range published {
		for _, set := range published[i].Spec.SharedCounters {
			for name, c := range set.Counters {
				free[set.Name+" "+name] = c.Value.Value()
			}
		}
	}
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			n := times[published[i].Spec.Pool.Name+" "+d.Name]
			if n > 1 && !ptr.Deref(d.AllowMultipleAllocations, false) {
				wrong = append(wrong, fmt.Sprintf("%s: %d claims hold %s", node, n, d.Name))
			}
			for _, consumes := range d.ConsumesCounters {
				for name, c := range consumes.Counters {
					free[consumes.CounterSet+" "+name] -= int64(min(n, 1)) * c.Value.Value()
				}
			}
		}
	}
	for name, left := range free {
		if left < 0 {
			wrong = append(wrong, fmt.Sprintf("%s: counter %s is overdrawn by %d", node, name, -left))
		}
	}
	slices.Sort(wrong)
	return wrong
}
