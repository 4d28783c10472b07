package publish_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/golden"
)

// TestGolden: what a node of each built-in inventory publishes by default, where
// MPS works. To accept a
// change: go test ./pkg/publish -run TestGolden -update
func TestGolden(t *testing.T) {
	for _, name := range models.InventoryNames() {
		t.Run(name, func(t *testing.T) {
			gpus := withShares(t, offered(gpusOf(t, builtIn(t, name))), profile.Default())
			got := picture(t, slicesOf(t, gpus), gpus)
			require.NoError(t, yaml.Unmarshal([]byte(got), &map[string]any{}), got)
			golden.Equal(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
}

// picture writes the node's slices for people: what sets each GPU apart on a
// line, and each kind of GPU once in full.
func picture(t *testing.T, published []*resourceapi.ResourceSlice, gpus []publish.GPU) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by TestGolden -update.\nslices: %d\ngpus:\n", len(published))
	var kinds []string
	for i := range gpus {
		kind := drawn(t, published, &gpus[i])
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		values := drawnOnce(t, published, &gpus[i])
		values["kind"] = fmt.Sprint(slices.Index(kinds, kind))
		fmt.Fprintf(&b, "- %s\n", flow(values))
	}
	for i, kind := range kinds {
		fmt.Fprintf(&b, "kind%d:\n%s", i, kind)
	}
	return b.String()
}

// drawnOnce is what a GPU's devices say about this one GPU and its place.
func drawnOnce(t *testing.T, published []*resourceapi.ResourceSlice, g *publish.GPU) map[string]string {
	t.Helper()
	devices := devicesOf(t, published, g.Name())
	values := map[string]string{"counterSet": g.Name()}
	for _, d := range devices {
		for name, text := range attributesText(d) {
			if !ofThisGPU[name] {
				continue
			}
			if name == names.AttributeParentUUID {
				name = names.AttributeUUID // one value for both names, or they show
			}
			if old, ok := values[name]; ok && old != text {
				text = old + " and " + text
			}
			values[name] = text
		}
	}
	return values
}

// ofThisGPU are the attributes in which GPUs of one model differ.
var ofThisGPU = map[string]bool{
	names.AttributeUUID:       true,
	names.AttributeParentUUID: true,
	string(deviceattribute.StandardDeviceAttributePCIBusID): true,
	string(deviceattribute.StandardDeviceAttributePCIeRoot): true,
	string(deviceattribute.StandardDeviceAttributeNUMANode): true,
}

// drawn is a GPU's counters and devices, with GPU for its name.
func drawn(t *testing.T, published []*resourceapi.ResourceSlice, g *publish.GPU) string {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	for _, slice := range published {
		for _, set := range slice.Spec.SharedCounters {
			if set.Name != g.Name() {
				continue
			}
			line("sharedCounters: {%s: %s} # %d", set.Name, flow(countersText(set.Counters)), len(set.Counters))
		}
	}
	devices := devicesOf(t, published, g.Name())
	common := commonAttributes(slices.DeleteFunc(slices.Clone(devices), func(d resourceapi.Device) bool {
		return d.AllowMultipleAllocations != nil
	}))
	line("attributesOfAll: %s", flow(common))
	line("devices: # %d", len(devices))
	for _, d := range devices {
		own := attributesText(d)
		maps.DeleteFunc(own, func(name, text string) bool { return common[name] == text || ofThisGPU[name] })
		line("- name: %s", d.Name)
		if ptr.Deref(d.AllowMultipleAllocations, false) {
			line("  allowMultipleAllocations: true")
		}
		line("  attributes: %s", flow(own))
		line("  capacity: %s", flow(capacityText(d)))
		for _, c := range d.ConsumesCounters {
			line("  consumes: {%s: %s}", c.CounterSet, flow(countersText(c.Counters)))
		}
	}
	return strings.ReplaceAll(b.String(), g.Name(), "GPU")
}

func commonAttributes(devices []resourceapi.Device) map[string]string {
	common := attributesText(devices[0])
	for _, d := range devices {
		own := attributesText(d)
		maps.DeleteFunc(common, func(name, text string) bool { return own[name] != text || ofThisGPU[name] })
	}
	return common
}

// attributesText spells strings with quotes and other types without, since a
// wrong type breaks every selector.
func attributesText(d resourceapi.Device) map[string]string {
	texts := map[string]string{}
	for name, a := range d.Attributes {
		switch {
		case a.StringValue != nil:
			texts[string(name)] = fmt.Sprintf("%q", *a.StringValue)
		case a.IntValue != nil:
			texts[string(name)] = fmt.Sprint(*a.IntValue)
		case a.VersionValue != nil:
			texts[string(name)] = *a.VersionValue
		case a.BoolValue != nil:
			texts[string(name)] = fmt.Sprint(*a.BoolValue)
		default:
			texts[string(name)] = fmt.Sprintf("%q", "odd: "+a.String())
		}
	}
	return texts
}

func capacityText(d resourceapi.Device) map[string]string {
	texts := map[string]string{}
	for name, c := range d.Capacity {
		texts[string(name)] = c.Value.String() + policyText(c.RequestPolicy)
	}
	return texts
}

// policyText is what a share can have of a capacity.
func policyText(p *resourceapi.CapacityRequestPolicy) string {
	if p == nil {
		return ""
	}
	text := " by default " + p.Default.String()
	if r := p.ValidRange; r != nil {
		text += " from " + r.Min.String()
		if r.Max != nil {
			text += " to " + r.Max.String()
		}
		if r.Step != nil {
			text += " by " + r.Step.String()
		}
	}
	return text
}

func countersText(counters map[string]resourceapi.Counter) map[string]string {
	texts := map[string]string{}
	for name, c := range counters {
		texts[name] = c.Value.String()
	}
	return texts
}

// flow writes a map on one line.
func flow(values map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, name+": "+values[name])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
