package formats

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/strict"
)

// unusedFlags are the flags without effect, and why.
var unusedFlags = map[string]string{
	"flags.failOnInitError":         "is not used: the plugin waits for the driver",
	"flags.mpsRoot":                 "is not used: MPS daemons have folders below /run/tranche",
	"flags.nvidiaDriverRoot":        "is not used: the driver is found, or the chart's value kubeletPlugin.nvidiaDriverRoot says where it is",
	"flags.nvidiaDevRoot":           "is not used: device nodes are in the host's /dev",
	"flags.gdrcopyEnabled":          "is not used",
	"flags.gdsEnabled":              "is not used",
	"flags.mofedEnabled":            "is not used",
	"flags.useNodeFeatureAPI":       "is not used: the chart's value nodeLabels has the node labelled",
	"flags.deviceDiscoveryStrategy": "is not used: GPUs are found by NVML",

	"flags.plugin.passDeviceSpecs":               "is not used: the container runtime gets device nodes by CDI",
	"flags.plugin.deviceListStrategy":            "is not used: the container runtime gets devices by CDI",
	"flags.plugin.deviceIDStrategy":              "is not used: GPUs are known by PCI address",
	"flags.plugin.cdiAnnotationPrefix":           "is not used: the kubelet passes CDI names without annotations",
	"flags.plugin.nvidiaCTKPath":                 "is not used: the plugin brings the program of its CDI hooks",
	"flags.plugin.containerDriverRoot":           "is not used: the plugin has the host's root folder at /host",
	"flags.plugin.sharedDevicesAllocationPolicy": "is not used: the scheduler fills a GPU before it takes the next",

	"flags.gfd.oneshot":         "is not used: it is of GPU feature discovery",
	"flags.gfd.noTimestamp":     "is not used: it is of GPU feature discovery",
	"flags.gfd.sleepInterval":   "is not used: it is of GPU feature discovery",
	"flags.gfd.outputFile":      "is not used: it is of GPU feature discovery",
	"flags.gfd.machineTypeFile": "is not used: it is of GPU feature discovery",
}

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
	r.tell("flags", reflect.ValueOf(f))
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

// tell adds a note for each flag that is set.
func (r *pluginReader) tell(path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		v = v.Elem()
		for i := range v.NumField() {
			r.tell(strict.Key(path, v.Type().Field(i).Tag.Get("json")), v.Field(i))
		}
		return
	}
	if reason, ok := unusedFlags[path]; ok && !v.IsNil() {
		r.note(path, "%s", reason)
	}
}
