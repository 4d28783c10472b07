package picture

import (
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// wholeCard is the label of the device that is all of a card.
const wholeCard = "whole card"

// device is a published device in the form that the arithmetic here needs.
type device struct {
	name       string
	label      string
	kind       string
	consumes   gpu.Counters
	positions  []int
	shared     bool // several claims may hold it at once
	barred     bool // a taint keeps new claims away
	taints     []resourceapi.DeviceTaint
	attributes attributes
	memory     int64
	// amounts is what claims take parts of, by capacity, nil for what is not shared.
	amounts map[string]resource.Quantity
}

type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// find looks for an attribute of ours, which may be spelt with or without the
// driver's domain.
func (a attributes) find(name string) (resourceapi.DeviceAttribute, bool) {
	for _, key := range []string{name, gpu.DriverName + "/" + name} {
		if v, ok := a[resourceapi.QualifiedName(key)]; ok {
			return v, true
		}
	}
	return resourceapi.DeviceAttribute{}, false
}

func (a attributes) text(name string) string {
	v, ok := a.find(name)
	switch {
	case !ok:
		return ""
	case v.StringValue != nil:
		return *v.StringValue
	case v.VersionValue != nil:
		return *v.VersionValue
	case v.IntValue != nil:
		return strconv.FormatInt(*v.IntValue, 10)
	}
	return ""
}

func (a attributes) number(name string) (int, bool) {
	v, ok := a.find(name)
	if !ok || v.IntValue == nil {
		return 0, false
	}
	return int(*v.IntValue), true
}

// mode is the mode in which an AMD card has the device: of a partition the
// profile says it.
func (a attributes) mode() string {
	profile := a.text("profile")
	if a.text("type") == string(gpu.TypeXCP) || a.text("vendor") == string(gpu.AMD) && profile != "" {
		return strings.ToUpper(profile)
	}
	return a.text("computePartition")
}

// ModeOf is the mode ("CPX") that a card must be in to have the device, empty for
// cards that are not in one mode at a time.
func ModeOf(d resourceapi.Device) string { return attributes(d.Attributes).mode() }

func newDevice(card string, d resourceapi.Device) *device {
	a := attributes(d.Attributes)
	out := &device{
		name:       d.Name,
		label:      label(card, d.Name, a),
		kind:       a.text("type"),
		consumes:   gpu.Counters{},
		shared:     d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations,
		taints:     d.Taints,
		attributes: a,
	}
	for _, c := range d.ConsumesCounters {
		for name, counter := range c.Counters {
			out.consumes[name] += counter.Value.Value()
		}
	}
	for _, key := range []resourceapi.QualifiedName{gpu.CounterMemory, gpu.DriverName + "/" + gpu.CounterMemory} {
		if c, ok := d.Capacity[key]; ok {
			out.memory = c.Value.Value()
		}
	}
	if out.shared {
		out.amounts = map[string]resource.Quantity{}
		for name, c := range d.Capacity {
			out.amounts[capacityName(name)] = c.Value
		}
	}
	out.barred = slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
		return t.Effect != resourceapi.DeviceTaintEffectNone
	})
	return out
}

// label is what a device is called in the picture. A type that is not known
// here keeps what its name adds to the name of the card.
func label(card, name string, a attributes) string {
	if a.text("type") == string(gpu.TypeGPU) {
		return wholeCard
	}
	if by := a.text("share"); by != "" {
		return strings.TrimSpace(a.text("profile") + " " + by + shareSuffix)
	}
	if v := a.text("profile"); v != "" {
		return v
	}
	return labelFromName(card, name)
}

// labelFromName is all that is left to go by when a device is not published.
func labelFromName(card, name string) string {
	if name == card {
		return wholeCard
	}
	label := strings.TrimPrefix(name, card+"-")
	if cut := strings.TrimRight(label, "0123456789"); len(cut) > 1 && strings.HasSuffix(cut, "-") {
		return strings.TrimSuffix(cut, "-") // which of the like pieces it is, the bar shows
	}
	return label
}

// Label is what a device is called in the picture.
func Label(d resourceapi.Device) string {
	return label(CardOf(d.Name), d.Name, attributes(d.Attributes))
}
