package formats

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/strict"
)

func (r *pluginReader) flags(f *flags) {
	if f == nil {
		return
	}
	r.oneOf("flags.migStrategy", f.MigStrategy, strategyNone, strategySingle, strategyMixed)
	// NVML finds no such GPUs.
	r.oneOf("flags.deviceDiscoveryStrategy", f.DeviceDiscoveryStrategy, "auto", "nvml")
	r.missing("flags.gdrcopyEnabled", f.GDRCopyEnabled, "GDRCopy's")
	r.missing("flags.gdsEnabled", f.GDSEnabled, "GPUDirect Storage's")
	r.missing("flags.mofedEnabled", f.MOFEDEnabled, "Mellanox network GPUs'")
	r.tell("flags", reflect.ValueOf(f).Elem())
}

// others are the sections beside flags and sharing.
func (r *pluginReader) others(c *pluginConfig) {
	if c.Resources != nil && len(c.Resources.GPUs)+len(c.Resources.MIGs) > 0 {
		r.note("resources", "is not used, nor by the device plugin")
	}
	if c.Imex != nil && (len(c.Imex.ChannelIDs) > 0 || c.Imex.Required) {
		r.problems.Add("imex", "containers do not get IMEX channels from Tranche; remove it if none needs them")
	}
}

func (r *pluginReader) oneOf(path string, value *string, known ...string) {
	if value != nil && !slices.Contains(known, *value) {
		r.problems.Add(path, "is %q, it can be %s", *value, strings.Join(known, ", "))
	}
}

// missing refuses a flag for devices that containers do not get here.
func (r *pluginReader) missing(path string, set *bool, whose string) {
	if set != nil && *set {
		r.problems.Add(path, "containers do not get %s devices from Tranche; set it to false if none needs them", whose)
	}
}

// tell adds a note for each flag that is set and has no effect.
func (r *pluginReader) tell(path string, flags reflect.Value) {
	for i := range flags.NumField() {
		field, value := flags.Type().Field(i), flags.Field(i)
		path := strict.Key(path, field.Tag.Get("json"))
		switch note := field.Tag.Get("note"); {
		case value.IsNil():
		case note != "":
			r.note(path, "%s", note)
		case value.Elem().Kind() == reflect.Struct:
			r.tell(path, value.Elem())
		}
	}
}
