package cluster

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// WholeGPU is the label of the device that is all of a GPU.
const WholeGPU = "whole GPU"

// ShareSuffix ends the label of a share.
const ShareSuffix = " share"

// Device is a published device.
type Device struct {
	*resourceapi.Device
	Pool  *Pool
	Slice *resourceapi.ResourceSlice
	DeviceKind
	Consumes gpu.Counters
	Holders  []Holder

	positions []int
}

func newDevice(p *Pool, s *resourceapi.ResourceSlice, published *resourceapi.Device) *Device {
	d := &Device{Device: published, Pool: p, Slice: s, Consumes: gpu.Counters{}}
	d.DeviceKind = DeviceKind{Type: gpu.Type(d.text("type")), Profile: d.text("profile"), ShareUnit: gpu.Basis(d.text(names.AttributeShareUnit))}
	d.Label = d.label()
	for _, set := range d.ConsumesCounters {
		for name, c := range set.Counters {
			d.Consumes[p.counter(set.CounterSet, name)] += c.Value.Value()
		}
	}
	return d
}

// CEL returns the device as selectors see it.
func (d *Device) CEL() cel.Device {
	return cel.Device{Driver: d.Pool.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity}
}

// Shared reports whether several claims can hold the device at once.
func (d *Device) Shared() bool { return ptr.Deref(d.AllowMultipleAllocations, false) }

// holding returns the holders without admin access.
func (d *Device) holding() []Holder {
	return slices.DeleteFunc(slices.Clone(d.Holders), func(h Holder) bool { return h.Admin })
}

// Held reports whether a claim holds the device.
func (d *Device) Held() bool {
	return slices.ContainsFunc(d.Holders, func(h Holder) bool { return !h.Admin })
}

// barred reports whether a taint keeps new claims away.
func (d *Device) barred() bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Effect != resourceapi.DeviceTaintEffectNone })
}

// On reports whether the device is available to a node.
func (d *Device) On(node *corev1.Node) bool {
	spec := d.Slice.Spec
	name, all, selector := ptr.Deref(spec.NodeName, ""), ptr.Deref(spec.AllNodes, false), spec.NodeSelector
	if ptr.Deref(spec.PerDeviceNodeSelection, false) {
		name, all, selector = ptr.Deref(d.NodeName, ""), ptr.Deref(d.AllNodes, false), d.NodeSelector
	}
	matches, err := structured.NodeMatches(allocation.Features, node, name, all, selector)
	return err == nil && matches
}

// attribute finds an attribute, with or without the driver's domain.
func (d *Device) attribute(name string) resourceapi.DeviceAttribute {
	if v, ok := d.Attributes[resourceapi.QualifiedName(name)]; ok {
		return v
	}
	return d.Attributes[resourceapi.QualifiedName(names.DriverName+"/"+name)]
}

func (d *Device) text(name string) string {
	switch v := d.attribute(name); {
	case v.StringValue != nil:
		return *v.StringValue
	case v.VersionValue != nil:
		return *v.VersionValue
	case v.IntValue != nil:
		return strconv.FormatInt(*v.IntValue, 10)
	}
	return ""
}

// Vendor returns who made the GPU.
func (d *Device) Vendor() gpu.Vendor { return gpu.Vendor(d.text("vendor")) }

// Mode returns the compute mode ("CPX") that the GPU must be in to have the device, empty if
// its partitions do not follow a mode.
func (d *Device) Mode() string {
	if d.Type.FollowsMode() || d.Vendor() == gpu.AMD && d.Profile != "" {
		return strings.ToUpper(d.Profile)
	}
	if d.Vendor() == gpu.AMD && d.Type != gpu.TypeMonitor && d.text("memoryPartition") != "" {
		return wholeMode
	}
	return ""
}

// wholeMode is the compute mode in which a GPU that has modes is whole.
const wholeMode = "SPX"

func (d *Device) memory() Bytes {
	for name, c := range d.Capacity {
		if names.Unqualified(string(name)) == names.CounterMemory {
			return Bytes(c.Value.Value())
		}
	}
	return 0
}

func (d *Device) label() string {
	switch {
	case d.Type == gpu.TypeGPU:
		return WholeGPU
	case d.ShareUnit != "":
		return strings.TrimSpace(d.Profile + " " + d.ShareUnit.Word() + ShareSuffix)
	case d.Profile != "":
		return d.Profile
	}
	return labelOfName(d.Name)
}

// labelOfName returns the label of a device of which only the name is known.
func labelOfName(device string) string {
	gpuID := GPUOf(device)
	if device == gpuID {
		return WholeGPU
	}
	label := strings.TrimPrefix(device, gpuID+"-")
	if kind := strings.TrimRight(label, "0123456789"); len(kind) > 1 && strings.HasSuffix(kind, "-") {
		return strings.TrimSuffix(kind, "-")
	}
	return label
}
