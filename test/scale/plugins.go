package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

const (
	// hardwareTime is how long the GPUs of a node take to change.
	hardwareTime = time.Second
	// pluginWorkers answer for all nodes.
	pluginWorkers = 32
	// devicesOfGPU is how many devices each GPU has.
	devicesOfGPU = 7
)

// plugins play those of all nodes: they answer what the controller asks of a node, and
// publish its slices.
type plugins struct {
	*cluster
	names    []string
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	ended    sync.WaitGroup

	// mu protects what follows.
	mu sync.Mutex
	// nodes are by name. One worker at a time has a node.
	nodes map[string]*plugin
}

// plugin is one node's.
type plugin struct {
	name    string
	applied string
	task    *v1beta1.Task
	// working is what it works on, since when.
	working string
	since   time.Time
	slices  []*resourceapi.ResourceSlice
	// taints is the order whose taints are published, on the GPUs of tainted.
	taints  *v1beta1.PublishedTaints
	tainted []string
	value   string
}

func (c *cluster) newPlugins(names []string) *plugins {
	p := &plugins{
		cluster: c, names: names, nodes: map[string]*plugin{},
		informer: cache.NewSharedIndexInformer(client.ListWatch(c.tranche.GPUNodes(), ""), &v1beta1.GPUNode{}, 0, cache.Indexers{}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	}
	for _, name := range names {
		p.nodes[name] = &plugin{name: name}
	}
	return p
}

// start answers until ctx ends.
func (p *plugins) start(ctx context.Context) error {
	add := func(o any) {
		if node, ok := o.(*v1beta1.GPUNode); ok {
			p.queue.Add(node.Name)
		}
	}
	if _, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return err
	}
	p.ended.Go(func() { p.informer.RunWithContext(ctx) })
	for range pluginWorkers {
		p.ended.Go(func() { p.work(ctx) })
	}
	context.AfterFunc(ctx, p.queue.ShutDown)
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func (p *plugins) work(ctx context.Context) {
	for {
		name, down := p.queue.Get()
		if down {
			return
		}
		wait, err := p.look(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(os.Stderr, "The plugin of %s: %v\n", name, err)
			p.queue.AddRateLimited(name)
		case wait > 0:
			p.queue.AddAfter(name, wait)
		default:
			p.queue.Forget(name)
		}
		p.queue.Done(name)
	}
}

// look does what a node is asked for. It says when to look again, zero: when something
// has changed.
func (p *plugins) look(ctx context.Context, name string) (time.Duration, error) {
	p.mu.Lock()
	node := p.nodes[name]
	p.mu.Unlock()
	object, exists, err := p.informer.GetStore().GetByKey(name)
	gpuNode, ok := object.(*v1beta1.GPUNode)
	if err != nil || !exists || !ok || node == nil {
		return 0, err
	}
	status := &gpuNode.Status
	if err := p.taint(ctx, node, status); err != nil {
		return 0, err
	}
	if !status.AwaitsPlugin(node.task) {
		return 0, nil
	}
	if wait := node.busy(status, time.Now()); wait > 0 {
		return wait, nil
	}
	task, applied := p.answer(node, status)
	if applied != node.applied {
		node.applied = applied
		if err := p.publish(ctx, node); err != nil {
			return 0, err
		}
	}
	before := node.task
	node.task = task
	if err := p.report(ctx, node); err != nil {
		node.task = before
		return 0, err
	}
	return 0, nil
}

// taint publishes the taints that a switch orders, or takes them off.
func (p *plugins) taint(ctx context.Context, n *plugin, s *v1beta1.GPUNodeStatus) error {
	var want *v1beta1.PublishedTaints
	var gpus []string
	value := ""
	if s.RequestsTaints() {
		want = &v1beta1.PublishedTaints{SwitchID: s.Switch.ID, TaintGeneration: s.Switch.TaintGeneration}
		gpus, value = append(gpus, s.Switch.GPUs...), s.Switch.To.ProfileName
	}
	if ptr.Equal(want, n.taints) {
		return nil
	}
	n.tainted, n.value = gpus, value
	if err := p.publish(ctx, n); err != nil {
		return err
	}
	before := n.taints
	n.taints = want
	if err := p.report(ctx, n); err != nil {
		n.taints = before
		return err
	}
	return nil
}

// busy is how long the GPUs still need for what they are asked.
func (n *plugin) busy(s *v1beta1.GPUNodeStatus, now time.Time) time.Duration {
	if s.State == v1beta1.Planning || s.State == v1beta1.Tainted {
		return 0
	}
	if key := s.Switch.ID + string(s.State); n.working != key {
		n.working, n.since = key, now
	}
	return n.since.Add(hardwareTime).Sub(now)
}

// answer is what the node says, and the hash of what it follows then. Every GPU changes
// with every profile.
func (p *plugins) answer(n *plugin, s *v1beta1.GPUNodeStatus) (*v1beta1.Task, string) {
	task := &v1beta1.Task{SwitchID: s.Switch.ID, State: s.State, Phase: v1beta1.TaskDone}
	if s.State == v1beta1.Tainted {
		task.TaintGeneration = s.Switch.TaintGeneration
	} else if s.State != v1beta1.Planning {
		return task, s.Switch.Target(s.State).Hash
	}
	task.Phase = v1beta1.TaskPlanned
	for i := range p.gpus {
		if s.Switch.To.ProfileName != s.Switch.From.ProfileName {
			task.Changes = append(task.Changes, v1beta1.GPUChange{GPU: gpuName(i), Description: "partitions for " + s.Switch.To.ProfileName})
		}
	}
	return task, n.applied
}

func gpuName(i int) string { return gpu.NameOf(fmt.Sprintf("0000:%02x:00.0", 0x10+i)) }

// publish writes the slices of a node.
func (p *plugins) publish(ctx context.Context, n *plugin) error {
	all := p.Core.ResourceV1().ResourceSlices()
	for i := range p.gpus {
		if i == len(n.slices) {
			made, err := all.Create(ctx, sliceOf(n, i, p.gpus), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			n.slices = append(n.slices, made)
			continue
		}
		changed := n.slices[i].DeepCopy()
		changed.Spec.Devices = devices(n, i)
		now, err := all.Update(ctx, changed, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		n.slices[i] = now
	}
	return nil
}

// sliceOf is the slice of one of a node's GPUs. Nothing looks at the counters here.
func sliceOf(n *plugin, gpuIndex, gpus int) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + gpuName(gpuIndex)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: names.DriverName, NodeName: ptr.To(n.name), Devices: devices(n, gpuIndex),
			Pool: resourceapi.ResourcePool{Name: names.PoolName(n.name), Generation: 1, ResourceSliceCount: int64(gpus)},
		},
	}
}

// devices are those of a GPU. They are others with every profile.
func devices(n *plugin, gpuIndex int) []resourceapi.Device {
	all := make([]resourceapi.Device, devicesOfGPU)
	for i := range all {
		all[i] = resourceapi.Device{
			Name: partition(gpuIndex, i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"profile": {StringValue: ptr.To("p" + n.applied)}, "productName": {StringValue: ptr.To("NVIDIA H100 80GB HBM3")},
			},
		}
		if slices.Contains(n.tainted, gpuName(gpuIndex)) {
			all[i].Taints = []resourceapi.DeviceTaint{{Key: names.TaintSwitching, Value: n.value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	return all
}

func partition(gpuIndex, i int) string { return fmt.Sprintf("%s-mig-1g-10gb-%d", gpuName(gpuIndex), i) }

// report writes how a node is, as its plugin does.
func (p *plugins) report(ctx context.Context, n *plugin) error {
	report := &v1beta1.NodeReport{BootID: "boot", GPUCount: int32(p.gpus), AppliedHash: n.applied, Task: n.task, PublishedTaints: n.taints}
	for i := range p.gpus {
		g := v1beta1.GPUReport{
			Name: gpuName(i), Vendor: string(gpu.NVIDIA), ProductName: "NVIDIA H100 80GB HBM3", Index: int32(i), GPUModes: v1beta1.GPUModes{MIGMode: v1beta1.MIGModeEnabled},
			SliceHash: publish.Digest(devices(n, i)),
		}
		for part := range devicesOfGPU {
			g.Partitions = append(g.Partitions, v1beta1.PartitionReport{Name: partition(i, part), Profile: "1g.10gb"})
		}
		report.GPUs = append(report.GPUs, g)
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": "GPUNode", "metadata": map[string]any{"name": n.name},
		"status": map[string]any{"node": report},
	})
	if err != nil {
		return err
	}
	_, err = p.tranche.GPUNodes().Patch(ctx, n.name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: names.DriverName, Force: ptr.To(true)}, "status")
	return err
}
