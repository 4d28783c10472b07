// Package invent invents clusters for the web page: of any size, in use as clusters are.
//
// It may import the Kubernetes API, pkg/cluster, pkg/cluster/overview, pkg/gpu, test/gpunodes and test/scenes.
package invent

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/scenes"
)

// slots is how many GPUs a node has.
const slots = 8

// Objects are those of a cluster.
type Objects struct {
	cluster.Objects
	Plans []v1beta1.PartitionPlan
}

// layouts are ways in which GPUs are held: profile of each partition with its start, or size of a share.
// Empty: the whole.
var layouts = [][]piece{
	nil, nil,
	{{"", 0}},
	{{"", 0}},
	{{"3g.40gb", 0}, {"3g.40gb", 4}},
	{{"3g.40gb", 0}, {"1g.10gb", 4}},
	{{"1g.10gb", 0}, {"1g.10gb", 1}, {"1g.10gb", 2}, {"1g.10gb", 3}, {"1g.10gb", 4}, {"1g.10gb", 5}, {"1g.10gb", 6}},
	{{"1g.10gb", 0}, {"1g.10gb", 1}, {"2g.20gb", 2}},
	{{"2g.20gb", 0}, {"2g.20gb", 2}, {"3g.40gb", 4}},
	{{share, 12}, {share, 8}, {share, 2}},
}

// share stands for a share of the GPU's memory, with so many GiB.
const share = "share"

type piece struct {
	profile string
	n       int
}

// people are the namespaces of the holders, with the names of their pods.
var people = []struct{ namespace, pod string }{
	{"vision", "train"}, {"nlp", "serve-llama"}, {"research", "notebook"}, {"search", "embed"}, {"vision", "batch"},
}

// Cluster is a cluster of n nodes: three in four have H100s, the others MI300Xs. Equal arguments
// give equal clusters.
func Cluster(n int, now time.Time) Objects {
	random := rand.New(rand.NewPCG(7, uint64(n))) //nolint:gosec // it need not be secret
	var out Objects
	out.Now = now
	out.Classes = Classes()
	for i := range n {
		out.node(fmt.Sprintf("node-%04d", i+1), i, random, now)
	}
	out.pending(n, now)
	out.plans(n)
	return out
}

func (o *Objects) node(name string, i int, random *rand.Rand, now time.Time) {
	ready := corev1.ConditionTrue
	if i%97 == 60 {
		ready = corev1.ConditionFalse
	}
	o.Nodes = append(o.Nodes, scenes.Node(name, ready, i%61 == 30))
	amd := i%4 == 3
	var slices []resourceapi.ResourceSlice
	var names []string
	for slot := range slots {
		names = append(names, scenes.GPUOf(slot))
		if amd {
			for j, s := range scenes.MI300X(name, slot) {
				s.Name = fmt.Sprintf("%s-%d-%d", name, slot, j)
				slices = append(slices, s)
			}
			o.holdAMD(name, slot, random)
			continue
		}
		h100 := scenes.H100(name, slot)
		h100[1].Spec.Devices = append(h100[1].Spec.Devices, shared(h100[1].Spec.Devices))
		slices = append(slices, h100...)
		o.holdNVIDIA(name, slot, random)
	}
	for j := range slices {
		slices[j].Spec.Pool.ResourceSliceCount = int64(len(slices))
	}
	o.Slices = append(o.Slices, slices...)
	o.GPUNodes = append(o.GPUNodes, gpuNode(name, i, names, now))
	if i%53 == 20 {
		o.unhealthy(name, names[random.IntN(slots)])
	}
}

// shared returns the whole GPU, the last device of an H100 before that for monitors, as a device of which
// claims hold memory.
func shared(h100 []resourceapi.Device) resourceapi.Device {
	d := *h100[len(h100)-2].DeepCopy()
	d.Name, d.AllowMultipleAllocations = gpu.ShareName(d.Name, gpu.ByMemory), new(true)
	d.Attributes["type"] = resourceapi.DeviceAttribute{StringValue: new(string(gpu.TypeShare))}
	d.Attributes[names.AttributeShareUnit] = resourceapi.DeviceAttribute{StringValue: new(string(gpu.ByMemory))}
	memory := d.Capacity[names.CapacityMemory]
	memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: new(resource.MustParse("8Gi"))}
	d.Capacity[names.CapacityMemory] = memory
	return d
}

func (o *Objects) holdNVIDIA(node string, slot int, random *rand.Rand) {
	for _, p := range layouts[random.IntN(len(layouts))] {
		device := scenes.GPUOf(slot)
		switch p.profile {
		case "":
		case share:
			device = gpu.ShareName(device, gpu.ByMemory)
		default:
			device = scenes.MIG(slot, p.profile, p.n)
		}
		o.hold(node, slot, device, random)
		if p.profile == share {
			amount := *resource.NewQuantity(int64(p.n)<<30, resource.BinarySI)
			scenes.Result(&o.Claims[len(o.Claims)-1]).ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{names.CapacityMemory: amount}
		}
	}
}

func (o *Objects) holdAMD(node string, slot int, random *rand.Rand) {
	switch random.IntN(4) {
	case 0:
		o.hold(node, slot, scenes.GPUOf(slot), random)
	case 1:
		for index := range random.IntN(8) + 1 {
			o.hold(node, slot, scenes.XCP(slot, "cpx", index), random)
		}
	}
}

func (o *Objects) hold(node string, slot int, device string, random *rand.Rand) {
	who := people[random.IntN(len(people))]
	o.Claims = append(o.Claims, scenes.Claim(who.namespace, fmt.Sprintf("%s-%d", who.pod, len(o.Claims)), node, slot, device))
}

// gpuNode follows a profile. A few are being switched, or have failed to.
func gpuNode(name string, i int, gpus []string, now time.Time) v1beta1.GPUNode {
	n := gpunodes.WithProfile(name, "on-demand").GPUs(gpunodes.MIGOn, gpus...)
	switch i % 41 {
	case 10:
		n.Switches(v1beta1.Draining, "inference", "evicts pods from 2 GPUs", gpus[0], gpus[1])
	case 11:
		n.Switches(v1beta1.Applying, "inference", "creates partitions", gpus[2], gpus[3], gpus[4])
	case 12:
		n.Fails("inference", "DrainDeadlineExceeded", "pods were not evicted in time", true)
	}
	if s := n.Status.Switch; s != nil {
		shift := now.Sub(gpunodes.Now)
		s.StateChangeTime.Time = s.StateChangeTime.Add(shift)
		if s.DeadlineTime != nil {
			s.DeadlineTime.Time = s.DeadlineTime.Add(shift)
		}
		if s.RetryTime != nil {
			s.RetryTime.Time = s.RetryTime.Add(shift)
		}
	}
	return n.GPUNode
}

// unhealthy taints all devices of a GPU.
func (o *Objects) unhealthy(node, gpuID string) {
	for i := range o.Slices {
		s := &o.Slices[i]
		if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
			continue
		}
		for j := range s.Spec.Devices {
			if cluster.GPUOf(s.Spec.Devices[j].Name) == gpuID {
				s.Spec.Devices[j].Taints = append(s.Spec.Devices[j].Taints, resourceapi.DeviceTaint{Key: names.DriverName + "/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute})
			}
		}
	}
}

func (o *Objects) pending(n int, now time.Time) {
	for i, class := range []string{"gpu-mig-7g-80gb.tranche.dev", "gpu-nvidia.tranche.dev", "gpu-xcp-cpx.tranche.dev"} {
		pod := fmt.Sprintf("%s-%d", people[i].pod, 9000+i)
		c := scenes.WaitingClaim(people[i].namespace, pod+"-gpu-x7k2p", class, pod)
		exactly := c.Spec.Devices.Requests[0].Exactly
		exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
		o.Claims = append(o.Claims, c)
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: people[i].namespace, Name: pod, CreationTimestamp: metav1.NewTime(now.Add(time.Duration(-i*i*47-3) * time.Minute))}}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new(pod + "-gpu-x7k2p")}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: fmt.Sprintf("0/%d nodes are available: %d cannot allocate all claims. still not schedulable, preemption: 0/%[1]d nodes are available: %[1]d Preemption is not helpful for scheduling.", n, n)}}
		o.PendingPods = append(o.PendingPods, p)
	}
	o.PodsKnown = true
}

func (o *Objects) plans(n int) {
	running := gpunodes.NewPlan("inference-fleet", "inference", 2)
	running.Status.CurrentStep, running.Status.StepCount = 2, 4
	running.Counts(v1beta1.PlanNodeCounts{Selected: int32(n), Updated: int32(n / 3), Switching: int32(n / 20), Failed: int32(n / 41), Waiting: int32(n - n/3 - n/20 - n/41)}). //nolint:gosec // n is small
																							Says(names.ConditionProgressing, true, "Soaking", "step 2 of 4 soaks for 10 more minutes before the next nodes are switched")
	done := gpunodes.NewPlan("amd-cpx", "cpx", 1)
	done.Counts(v1beta1.PlanNodeCounts{Selected: int32(n / 4), Updated: int32(n / 4)}). //nolint:gosec // n is small
												Says(names.ConditionProgressing, false, "Complete", "all nodes have revision 1")
	o.Plans = append(o.Plans, running.PartitionPlan, done.PartitionPlan)
}

// Classes are classes such as those of the chart.
func Classes() []resourceapi.DeviceClass {
	equals := func(attribute, value string) string {
		return fmt.Sprintf(`device.attributes["%s"].?%s.orValue("") == %q`, names.DriverName, attribute, value)
	}
	class := func(name string, expressions ...string) resourceapi.DeviceClass {
		c := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", names.DriverName)}}}
		for _, e := range expressions {
			c.Spec.Selectors = append(c.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
		}
		return c
	}
	out := []resourceapi.DeviceClass{
		class(names.DriverName, equals("type", "gpu")),
		class("gpu-nvidia.tranche.dev", equals("type", "gpu"), equals("vendor", "nvidia")),
		class("gpu-mig.tranche.dev", equals("type", "mig")),
		class("gpu-memory-share.tranche.dev", equals("shareUnit", "Memory")),
	}
	for _, profile := range []string{"1g-10gb:1g.10gb", "1g-20gb:1g.20gb", "2g-20gb:2g.20gb", "3g-40gb:3g.40gb", "4g-40gb:4g.40gb", "7g-80gb:7g.80gb"} {
		name, value := profile[:7], profile[8:]
		out = append(out, class("gpu-mig-"+name+".tranche.dev", equals("profile", value)))
	}
	for _, mode := range []string{"cpx", "qpx", "dpx"} {
		out = append(out, class("gpu-xcp-"+mode+".tranche.dev", equals("profile", mode)))
	}
	return out
}
