package scenes

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

const (
	// H100Name is the product name that an H100 publishes.
	H100Name = "NVIDIA H100 80GB HBM3"
	// H100Memory is its memory in bytes.
	H100Memory = 80 << 30
)

// h100Profiles is what an H100 offers, smallest first, as it is published.
var h100Profiles = []struct {
	name   string
	size   int
	starts []int
	ofa    int64
}{
	{"1g.10gb", 1, []int{6, 5, 4, 3, 2, 1, 0}, 0},
	{"1g.10gb+me", 1, []int{6, 5, 4, 3, 2, 1, 0}, 1},
	{"1g.20gb", 2, []int{6, 4, 2, 0}, 0},
	{"2g.20gb", 2, []int{4, 2, 0}, 0},
	{"3g.40gb", 4, []int{4, 0}, 0},
	{"4g.40gb", 4, []int{0}, 0},
	{"7g.80gb", 8, []int{0}, 1},
}

// GPUOf names the GPU in the nth slot.
func GPUOf(slot int) string { return gpu.NameOf(address(slot)) }

func address(slot int) string { return fmt.Sprintf("0000:%02x:00.0", 0x0f+slot*0x10) }

// OnePool is what one GPU adds to the pool of its node: one slice with the counters, one
// with the devices.
func OnePool(node, gpuID string, counters gpu.Counters, devices ...resourceapi.Device) []resourceapi.ResourceSlice {
	spec := resourceapi.ResourceSliceSpec{
		Driver:   names.DriverName,
		NodeName: &node,
		Pool:     resourceapi.ResourcePool{Name: names.PoolName(node), Generation: 1, ResourceSliceCount: 2},
	}
	first, second := spec, spec
	first.SharedCounters = []resourceapi.CounterSet{{Name: gpuID, Counters: apiCounters(counters)}}
	second.Devices = devices
	return []resourceapi.ResourceSlice{
		{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + gpuID + "-0"}, Spec: first},
		{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + gpuID + "-1"}, Spec: second},
	}
}

func apiCounters(c gpu.Counters) map[string]resourceapi.Counter {
	out := map[string]resourceapi.Counter{}
	for name, n := range c {
		out[name] = resourceapi.Counter{Value: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	return out
}

func attr(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &s}
}

// Device is a device as it is published.
func Device(gpuID, name, product, kind string, slot int, consumes gpu.Counters) resourceapi.Device {
	return resourceapi.Device{
		Name: name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": attr(kind), "vendor": attr("nvidia"), "productName": attr(product),
			"driverVersion": {VersionValue: ptr.To("580.159.4")}, "resource.kubernetes.io/pciBusID": attr(address(slot)),
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: *resource.NewQuantity(H100Memory, resource.BinarySI)},
		},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: gpuID, Counters: apiCounters(consumes)}},
	}
}

// monitor is the device for monitors of an H100.
func monitor(gpuID string, slot int) resourceapi.Device {
	d := Device(gpuID, gpuID+"-monitor", H100Name, "monitor", slot, nil)
	d.ConsumesCounters = nil
	d.Taints = []resourceapi.DeviceTaint{{Key: names.TaintMonitor, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	return d
}

// H100 is a GPU with every placement of every profile, and the whole GPU.
func H100(node string, slot int) []resourceapi.ResourceSlice {
	gpuID := GPUOf(slot)
	total := gpu.Counters{"ofa-engines": 1}
	for i := range 8 {
		total[fmt.Sprintf("memory-slice-%d", i)] = 1
	}
	var devices []resourceapi.Device
	for _, p := range h100Profiles {
		for _, start := range p.starts {
			consumes := gpu.Counters{"ofa-engines": p.ofa}
			for i := start; i < start+p.size; i++ {
				consumes[fmt.Sprintf("memory-slice-%d", i)] = 1
			}
			d := Device(gpuID, MIG(slot, p.name, start), H100Name, "mig", slot, consumes)
			d.Attributes["profile"] = attr(p.name)
			d.Capacity["memory"] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(H100Memory/8*int64(p.size), resource.BinarySI)}
			d.Attributes["placementStart"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(start))}
			devices = append(devices, d)
		}
	}
	devices = append(devices, Device(gpuID, gpuID, H100Name, "gpu", slot, total), monitor(gpuID, slot))
	return OnePool(node, gpuID, total, devices...)
}

// MI300XName is the product name of an MI300X.
const MI300XName = "AMD Instinct MI300X"

// MI300X is an AMD GPU with every partition of every mode, as it is published.
func MI300X(node string, slot int) []resourceapi.ResourceSlice {
	return Instinct(node, slot, MI300XName, xcp.Facts{
		XCCs: 8, ComputeUnits: 304, Memory: 196592 << 20, Modes: []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX},
	})
}

// Instinct is an AMD GPU with the facts that are given.
func Instinct(node string, slot int, product string, f xcp.Facts) []resourceapi.ResourceSlice {
	f.PCIAddress, f.MemoryMode = address(slot), cmp.Or(f.MemoryMode, xcp.NPS1)
	g := gpu.GPU{
		PCIAddress: f.PCIAddress, Vendor: gpu.AMD, UUID: fmt.Sprintf("GPU-%d", slot), ProductName: product,
		DriverVersion: "6.16.13", MemoryMode: string(f.MemoryMode), Memory: f.Memory,
	}
	g.Placements, g.Counters = xcp.Devices(f)
	published, _ := publish.Slices([]publish.GPU{{GPU: g}})
	return publish.Objects(names.DriverName, node, published)
}

// XCP names a partition of an AMD GPU.
func XCP(slot int, profile string, index int) string {
	return fmt.Sprintf("%s-%s-%d", GPUOf(slot), profile, index)
}

// L4 is a GPU that cannot be partitioned.
func L4(node string, slot int) []resourceapi.ResourceSlice {
	total := gpu.Counters{"memory": 24 << 30}
	return OnePool(node, GPUOf(slot), total, Device(GPUOf(slot), GPUOf(slot), "NVIDIA L4", "gpu", slot, total))
}

// GPUs is a node with so many GPUs.
func GPUs(node string, n int, g func(string, int) []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
	var out []resourceapi.ResourceSlice
	for i := range n {
		out = append(out, g(node, i)...)
	}
	for i := range out {
		out[i].Spec.Pool.ResourceSliceCount = int64(len(out))
	}
	return out
}

// MIG names the device of a placement.
func MIG(slot int, profile string, start int) string {
	return fmt.Sprintf("%s-mig-%s-%d", GPUOf(slot), gpu.ProfileSlug(profile), start)
}

// Claim is an allocated claim for one device, used by a pod of the same name.
func Claim(namespace, pod, node string, slot int, device string) resourceapi.ResourceClaim {
	c := WaitingClaim(namespace, pod+"-gpu-x7k2p", "gpu-mig.tranche.dev", pod)
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(node), Device: device,
		}},
	}}
	return c
}

// Result is the one allocation result of a claim, to be changed.
func Result(c *resourceapi.ResourceClaim) *resourceapi.DeviceRequestAllocationResult {
	return &c.Status.Allocation.Devices.Results[0]
}

// WaitingClaim is a claim without an allocation, made for a pod.
func WaitingClaim(namespace, name, class, pod string) resourceapi.ResourceClaim {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if pod != "" {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: pod}}
	}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{
		Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class},
	}}
	return c
}

// Taint taints the devices that are named.
func Taint(all []resourceapi.ResourceSlice, named func(string) bool, t resourceapi.DeviceTaint) {
	for i := range all {
		for j := range all[i].Spec.Devices {
			if d := &all[i].Spec.Devices[j]; named(d.Name) {
				d.Taints = append(d.Taints, t)
			}
		}
	}
}

// Node is a node that is ready or not, and cordoned or not.
func Node(name string, ready corev1.ConditionStatus, cordoned bool) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Unschedulable = cordoned
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}
