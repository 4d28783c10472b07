package nodes

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
)

// NVIDIADriver is the name of NVIDIA's DRA driver. Its layout with dynamic MIG has one
// pool per node, and on an H100 or H200 15 counters, 12 attributes and 7 capacities.
const NVIDIADriver = "gpu.nvidia.com"

// nvidiaEngines are the capacities beside memory and multiprocessors. They are
// published and counted even where a partition has none.
var nvidiaEngines = []string{"copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"}

// counterNames are the capacities' names as counters.
var counterNames = map[string]string{
	"memory": "memory", "multiprocessors": "multiprocessors", "copyEngines": "copy-engines",
	"decoders": "decoders", "encoders": "encoders", "jpegEngines": "jpeg-engines", "ofaEngines": "ofa-engines",
}

// nvidiaProfileIDs are part of the devices' names, by which they are in order.
var nvidiaProfileIDs = map[string]int{"1g": 19, "1g+me": 20, "1g double": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}

// NVIDIASlices publishes GPUs and their placements in that layout: one slice with the
// counters of all GPUs, and one for the devices of each.
func NVIDIASlices(node string, gpus []gpu.GPU) []*resourceapi.ResourceSlice {
	var counters []resourceapi.CounterSet
	slicesOfPool := []publish.Slice{{}}
	for i := range gpus {
		l := nvidiaLayout{gpu: &gpus[i], most: mostOf(gpus[i].Placements)}
		counters = append(counters, resourceapi.CounterSet{Name: l.counterSet(), Counters: counted(l.most, 0, l.memorySlices())})
		slicesOfPool = append(slicesOfPool, publish.Slice{Devices: l.devices()})
	}
	slicesOfPool[0].SharedCounters = counters
	return allocator.Slices(NVIDIADriver, node, slicesOfPool)
}

// ForDriver is the same classes for another driver's devices, so that both layouts are
// asked the same question.
func ForDriver(classes []*resourceapi.DeviceClass, driver string) []*resourceapi.DeviceClass {
	var all []*resourceapi.DeviceClass
	for _, class := range classes {
		class = class.DeepCopy()
		for _, selector := range class.Spec.Selectors {
			if selector.CEL != nil {
				selector.CEL.Expression = strings.ReplaceAll(selector.CEL.Expression, fmt.Sprintf("%q", names.DriverName), fmt.Sprintf("%q", driver))
			}
		}
		all = append(all, class)
	}
	return all
}

// nvidiaLayout is one GPU in that layout.
type nvidiaLayout struct {
	gpu *gpu.GPU
	// most is the largest of each capacity over all partitions.
	most map[string]int64
}

func (l nvidiaLayout) name() string       { return fmt.Sprintf("gpu-%d", l.gpu.Minor) }
func (l nvidiaLayout) counterSet() string { return l.name() + "-counter-set" }

func (l nvidiaLayout) memorySlices() int {
	n := 0
	for _, p := range l.gpu.Placements {
		n = max(n, p.Start+p.Size)
	}
	return n
}

// devices are in the order of their names.
func (l nvidiaLayout) devices() []resourceapi.Device {
	var devices []resourceapi.Device
	for _, p := range l.gpu.Placements {
		name, has, start, end := l.name(), l.most, 0, l.memorySlices()
		if p.Type == gpu.TypeMIG {
			name, has, start, end = l.deviceName(p), capacitiesOf(p), p.Start, p.Start+p.Size
		}
		device := resourceapi.Device{
			Name: name, Attributes: l.attributes(p), Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: l.counterSet(), Counters: counted(has, start, end)}},
		}
		for capacity, n := range has {
			device.Capacity[resourceapi.QualifiedName(capacity)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(n, resource.BinarySI)}
		}
		devices = append(devices, device)
	}
	slices.SortFunc(devices, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
	return devices
}

func (l nvidiaLayout) deviceName(p gpu.Placement) string {
	kind, _, _ := strings.Cut(p.Profile, ".")
	switch {
	case strings.HasSuffix(p.Profile, "+me"):
		kind += "+me"
	case kind == "1g" && p.Size == 2:
		kind += " double"
	}
	slug := strings.NewReplacer(".", "", "+", "-").Replace(p.Profile)
	return fmt.Sprintf("%s-mig-%s-%d-%d", l.name(), slug, nvidiaProfileIDs[kind], p.Start)
}

func (l nvidiaLayout) attributes(p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: ptr.To(s)} }
	version := func(s string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{VersionValue: ptr.To(s)}
	}
	m := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type":                            text(string(p.Type)),
		"productName":                     text(l.gpu.ProductName),
		"brand":                           text("Nvidia"),
		"architecture":                    text("Hopper"),
		"cudaComputeCapability":           version("9.0.0"),
		"driverVersion":                   version("580.159.4"),
		"cudaDriverVersion":               version("13.0.0"),
		"resource.kubernetes.io/pciBusID": text(l.gpu.PCIAddress),
		"resource.kubernetes.io/pcieRoot": text(l.gpu.PCIeRoot),
		"resource.kubernetes.io/numaNode": {IntValue: ptr.To(ptr.Deref(l.gpu.NUMANode, 0))},
	}
	if p.Type == gpu.TypeMIG {
		m["parentUUID"], m["profile"] = text(l.gpu.UUID), text(p.Profile)
	} else {
		m["uuid"] = text(l.gpu.UUID)
	}
	return m
}

// capacitiesOf are the seven capacities of a partition.
func capacitiesOf(p gpu.Placement) map[string]int64 {
	has := map[string]int64{"memory": p.Memory, "multiprocessors": p.ComputeUnits}
	for _, engine := range nvidiaEngines {
		has[engine] = p.Engines[engine]
	}
	return has
}

func mostOf(placements []gpu.Placement) map[string]int64 {
	most := map[string]int64{}
	for _, p := range placements {
		if p.Type != gpu.TypeMIG {
			continue
		}
		for name, n := range capacitiesOf(p) {
			most[name] = max(most[name], n)
		}
	}
	return most
}

// counted is a counter for each capacity and one for each memory slice.
func counted(has map[string]int64, start, end int) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for name, n := range has {
		counters[counterNames[name]] = resourceapi.Counter{Value: *resource.NewQuantity(n, resource.BinarySI)}
	}
	for slice := start; slice < end; slice++ {
		counters[fmt.Sprintf("memory-slice-%d", slice)] = resourceapi.Counter{Value: *resource.NewQuantity(1, resource.BinarySI)}
	}
	return counters
}
