package fit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Cause is why a node cannot serve a pod, whatever claims hold. It can be merged with that of other nodes.
type Cause struct {
	// about is a request, or what keeps the pod off the node.
	about string
	// rank is how much a node has of what a request asks for: the number of selectors that a device passes, or
	// enoughSelectors. Merged nodes with less do not count.
	rank int
	// text names neither a node nor an object of another namespace. It follows the number of devices, if
	// there are any. most is the largest amount that a node has, and text is of that node.
	text    string
	devices int
	most    resource.Quantity
	values  map[string]value
	remedy  Remedy
}

// enoughSelectors is the rank of a node whose devices pass all selectors.
const enoughSelectors = 1 << 16

// value is what devices have of an attribute or a capacity: texts in order, as many as are named and one
// more, or the least and the largest amount.
type value struct {
	texts       []string
	least, most *resource.Quantity
}

// maxValues is the maximum number of values to name, maxLabels that of kinds of devices.
const (
	maxValues = 3
	maxLabels = 12
)

// labels is the name of the value that has kinds of devices.
const labels = ""

// lack returns why a node has no device for a choice.
func (m *Model) lack(node *corev1.Node, s *supply) *Cause {
	switch {
	case s.places > 0 && s.noneFits():
		return &Cause{rank: enoughSelectors, text: s.limit.text, most: s.limit.most}
	case s.places > 0:
		return &Cause{
			rank: enoughSelectors, most: *resource.NewQuantity(s.most, resource.DecimalSI),
			text: fmt.Sprintf("it asks for %d devices at once, and the largest node has %d", s.Count, s.most),
		}
	case s.passed == 0:
		there := value{}.merged(value{texts: m.offers(node, false)}, maxLabels)
		return &Cause{text: "no device of class " + s.Class, values: map[string]value{labels: there}}
	}
	selector, of := s.Selectors[s.passed-1].CEL.Expression, s.Class
	if s.passed > 1 {
		of += " that pass the selectors before"
	}
	return &Cause{
		rank: s.passed, devices: len(s.nearly), values: valuesOf(s.nearly, cluster.NamesIn(selector)),
		text: fmt.Sprintf("of class %s, none passes `%s`", of, text.Cut(strings.Join(strings.Fields(selector), " "), maxSelector)),
	}
}

// lackOf returns why a node has no device for a request, of which all choices are given.
func (m *Model) lackOf(node *corev1.Node, request string, all []*supply) (out *Cause) {
	for _, s := range all {
		if c := m.lack(node, s); out == nil || c.rank > out.rank {
			out = c
		}
	}
	out.about = request
	return out
}

// maxSelector is the maximum length of a selector in a text, in bytes.
const maxSelector = 200

// valuesOf returns what devices have of attributes and capacities.
func valuesOf(devices []*cluster.Device, wanted []string) map[string]value {
	out := map[string]value{}
	add := func(name string, v value) {
		if name = names.Unqualified(name); slices.Contains(wanted, name) {
			out[name] = out[name].merged(v, maxValues)
		}
	}
	for _, d := range devices {
		for name, a := range d.Attributes {
			add(string(name), attributeValue(a))
		}
		for name, c := range d.Capacity {
			add(string(name), value{least: &c.Value, most: &c.Value})
		}
	}
	return out
}

func attributeValue(a resourceapi.DeviceAttribute) value {
	switch {
	case a.IntValue != nil:
		q := resource.NewQuantity(*a.IntValue, resource.DecimalSI)
		return value{least: q, most: q}
	case a.BoolValue != nil:
		return value{texts: []string{strconv.FormatBool(*a.BoolValue)}}
	case a.StringValue != nil:
		return value{texts: []string{*a.StringValue}}
	case a.VersionValue != nil:
		return value{texts: []string{*a.VersionValue}}
	}
	return value{texts: slices.Concat(a.StringValues, a.VersionValues)}
}

// merged returns both values.
func (v value) merged(o value, most int) value {
	v.texts = lists.Union(slices.Clone(v.texts), o.texts...)
	slices.Sort(v.texts)
	v.texts = v.texts[:min(len(v.texts), most+1)]
	if o.least != nil && (v.least == nil || o.least.Cmp(*v.least) < 0) {
		v.least = o.least
	}
	if o.most != nil && (v.most == nil || o.most.Cmp(*v.most) > 0) {
		v.most = o.most
	}
	return v
}

func (v value) text(most int) string {
	switch {
	case v.least == nil && len(v.texts) > most:
		return strings.Join(v.texts[:most], ", ") + " and others"
	case v.least == nil:
		return strings.Join(v.texts, ", ")
	case v.least.Cmp(*v.most) == 0:
		return v.most.String()
	}
	return v.least.String() + " to " + v.most.String()
}

// named returns how many values of an attribute are named.
func named(attribute string) int {
	if attribute == labels {
		return maxLabels
	}
	return maxValues
}

// merged returns the cause of two sets of nodes.
func (c *Cause) merged(o *Cause) *Cause {
	switch {
	case o.rank < c.rank:
		return c
	case o.rank > c.rank:
		return o
	}
	out := *c
	out.devices += o.devices
	if larger := o.most.Cmp(c.most); larger > 0 || larger == 0 && o.text < c.text {
		out.text, out.most = o.text, o.most
	}
	out.values = maps.Clone(c.values)
	for name, v := range o.values {
		out.values[name] = out.values[name].merged(v, named(name))
	}
	return &out
}

// String returns the cause as a phrase: "9 devices of class gpu.tranche.dev, none passes `…`; found: …".
func (c *Cause) String() string {
	out := c.text
	if c.devices > 0 {
		out = text.Count(c.devices, "device") + " " + out
	}
	var have []string
	for _, name := range slices.Sorted(maps.Keys(c.values)) {
		have = append(have, strings.TrimSpace(name+" "+c.values[name].text(named(name))))
	}
	if there := strings.Join(have, ", "); there != "" {
		out += "; found: " + there
	}
	return out
}
