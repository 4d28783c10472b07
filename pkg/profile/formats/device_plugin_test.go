package formats

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

// What becomes of each file of testdata is in the file beside it.
func TestReadDevicePlugin(t *testing.T) {
	golden.Files(t, "testdata/deviceplugin/*.yaml", func(t *testing.T, name string, data []byte) string {
		spec, notes, readErr := readDevicePlugin(strict.Text{File: name, Data: data})
		got, err := yaml.Marshal(map[string]any{"error": message(readErr), "notes": notes, "spec": spec})
		require.NoError(t, err)
		return string(got)
	})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The two keys that the misspelt file has wrong are named, with the right spelling.
func TestMisspeltKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/deviceplugin/time-slicing-misspelt.yaml")
	require.NoError(t, err)
	_, _, err = readDevicePlugin(strict.Text{File: "slice-10", Data: data})
	require.EqualError(t, err, "slice-10: flages: unknown key; did you mean flags? (line 3); "+
		"sharing.timeSlicing.failRequestGreaterThanOne: unknown key; did you mean failRequestsGreaterThanOne? (line 8)")

	corrected := strings.NewReplacer("flages", "flags", "failRequestG", "failRequestsG").Replace(string(data))
	spec, _, err := readDevicePlugin(strict.Text{File: "slice-10", Data: []byte(corrected)})
	require.NoError(t, err)
	sharing := spec.Rules[0].Sharing
	assert.True(t, *sharing.WholeGPUs)
	assert.True(t, sharing.FailRequestsGreaterThanOne)
	assert.Equal(t, int32(10), *sharing.Replicas)
	assert.Equal(t, v1beta1.TimeSlicing, sharing.Strategy)
	assert.Equal(t, means(v1beta1.DeviceAutoReplica), spec.Rules[0].ExtendedResource)
}

func TestDevicePluginRefused(t *testing.T) {
	const head = "sharing: {timeSlicing: {resources: ["
	for name, tt := range map[string]struct{ document, want string }{
		"another version": {"version: v2", `f: version: is "v2", and v1 is what can be read`},
		"no resources":    {"sharing: {mps: {renameByDefault: true}}", "f: sharing.mps.resources: names no resource"},
		"no name":         {head + "{replicas: 2}]}}", "f: sharing.timeSlicing.resources[0].name: is missing"},
		"no replicas":     {head + "{name: nvidia.com/gpu}]}}", "resources[0].replicas: is missing"},
		"no replica":      {head + "{name: nvidia.com/gpu, replicas: 0}]}}", "resources[0].replicas: is 0, it can be 1 to 1000"},
		"negative":        {head + "{name: nvidia.com/gpu, replicas: -2}]}}", "resources[0].replicas: is -2, it can be 1 to 1000"},
		"a word":          {head + "{name: nvidia.com/gpu, replicas: ten}]}}", `replicas: must be a whole number, not "ten"`},
		"twice":           {head + "{name: nvidia.com/gpu, replicas: 2}, {name: gpu, replicas: 2}]}}", "resources[1].name: nvidia.com/gpu is there twice"},
		"profile twice":   {head + "{name: mig-1g.5gb, replicas: 2}, {name: nvidia.com/mig-1g.5gb, replicas: 2}]}}", "resources[1].name: nvidia.com/mig-1g.5gb is there twice"},
		"another resource": {head + "{name: example.com/gpu, replicas: 2}]}}",
			`resources[0].name: is "example.com/gpu": what can be shared is nvidia.com/gpu and nvidia.com/mig-<profile>`},
		"media engines": {head + "{name: nvidia.com/mig-1g.10gb.me, replicas: 2}]}}",
			`resources[0].name: is "nvidia.com/mig-1g.10gb.me": of the partitions with other engines (+me, -me and so on) there are no shares; share those of 1g.10gb`},
		"MPS on partitions": {"sharing: {mps: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}",
			`f: sharing.mps.resources[0].name: is "nvidia.com/mig-1g.10gb": MPS is for whole GPUs only`},
		"more than MPS takes": {"sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 49}]}}",
			"f: sharing.mps.resources[0].replicas: is 49, and an MPS server takes 48 clients"},
		"of either section": {"flags: {renameByDefault: true}\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}",
			"f: flags.renameByDefault: unknown key; it belongs to sharing.mps or sharing.timeSlicing (line 1)"},
		"below the section": {"sharing: {timeSlicing: {replicas: 4}}", "f: sharing.timeSlicing.replicas: unknown key; it belongs to sharing.mps.resources[] or sharing.timeSlicing.resources[]"},
		"replicas beyond a fraction": {"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 16384}]}}",
			"f: sharing.timeSlicing.resources[0].replicas: is 16384, and a GPU has at most 1000 replicas: leave it out of the file, and request memory of class gpu-memory-share-nvidia.tranche.dev, which has no such limit"},
		"misplaced flag":      {"migStrategy: single", "f: migStrategy: unknown key; it belongs to flags"},
		"MIG strategy":        {"flags: {migStrategy: double}", `f: flags.migStrategy: is "double", it can be none, single, mixed`},
		"GPUs without NVML":   {"flags: {deviceDiscoveryStrategy: tegra}", `f: flags.deviceDiscoveryStrategy: is "tegra", it can be auto, nvml`},
		"GDRCopy":             {"flags: {gdrcopyEnabled: true}", "f: flags.gdrcopyEnabled: containers do not get GDRCopy's devices from Tranche"},
		"GPUDirect Storage":   {"flags: {gdsEnabled: true}", "f: flags.gdsEnabled: containers do not get GPUDirect Storage's devices"},
		"Mellanox":            {"flags: {mofedEnabled: true}", "f: flags.mofedEnabled: containers do not get Mellanox network GPUs' devices"},
		"IMEX channels":       {"imex: {channelIDs: [0]}", "f: imex: containers do not get IMEX channels from Tranche"},
		"what is not there":   {"imex: {channels: [0]}", "f: imex.channels: unknown key"},
		"NVIDIA's DRA driver": {"sharing: {strategy: TimeSlicing}", "f: sharing.strategy: unknown key; valid keys are mps, timeSlicing"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, notes, err := readDevicePlugin(strict.Text{File: "f", Data: []byte(tt.document)})
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, spec)
			assert.Empty(t, notes)
		})
	}
}

// The device plugin refuses requests for more than one replica by default where MPS
// shares, and lets them pass where time-slicing does.
func TestFailRequestsGreaterThanOne(t *testing.T) {
	for _, tt := range []struct {
		strategy, key string
		want          bool
	}{
		{"timeSlicing", "", false},
		{"timeSlicing", "failRequestsGreaterThanOne: true, ", true},
		{"mps", "", true},
		{"mps", "failRequestsGreaterThanOne: false, ", false},
	} {
		spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: []byte("sharing: {" + tt.strategy + ": {" + tt.key + "resources: [{name: nvidia.com/gpu, replicas: 1}]}}")})
		require.NoError(t, err)
		assert.Equal(t, tt.want, spec.Rules[0].Sharing.FailRequestsGreaterThanOne, "%s %s", tt.strategy, tt.key)
	}
}

// With both strategies, the device plugin shares by MPS.
func TestMPSHasPrecedence(t *testing.T) {
	spec, notes, err := readDevicePlugin(strict.Text{File: "f", Data: []byte("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, mps: {resources: [{name: gpu, replicas: 4}]}}")})
	require.NoError(t, err)
	assert.Equal(t, v1beta1.MPS, spec.Rules[0].Sharing.Strategy)
	assert.Equal(t, int32(4), *spec.Rules[0].Sharing.Replicas)
	assert.Contains(t, notes, "sharing.timeSlicing: is not used, nor by the device plugin: mps has precedence")
}

// No flag is passed over in silence.
func TestEveryFlagHasItsReason(t *testing.T) {
	var paths []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, in reflect.Type) {
		for i := range in.NumField() {
			f := in.Field(i)
			path := path + "." + f.Tag.Get("json")
			if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
				walk(path, f.Type.Elem())
				continue
			}
			if path != "flags.migStrategy" { // the one that counts
				assert.Contains(t, f.Tag.Get("note"), "is not used", path)
				paths = append(paths, path)
			}
		}
	}
	walk("flags", reflect.TypeFor[flags]())
	data, err := os.ReadFile("testdata/deviceplugin/partitions.yaml")
	require.NoError(t, err)
	_, notes, err := readDevicePlugin(strict.Text{File: "f", Data: data})
	require.NoError(t, err)
	for _, path := range paths {
		assert.Contains(t, strings.Join(notes, "\n"), path+": is not used")
	}
}

func FuzzReadDevicePlugin(f *testing.F) {
	golden.Seeds(f, "testdata/deviceplugin/*.yaml")
	f.Add([]byte("sharing: {timeSlicing: {resources: [{name: mig-1g.5gb+me, replicas: 3}]}}"))
	f.Add([]byte("sharing: {mps: {resources: [{devices: {a: b}}]}, timeSlicing: }"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: data})
		if err != nil {
			require.Empty(t, spec)
			return
		}
		require.Len(t, spec.Rules, 1)
		sharing := spec.Rules[0].Sharing
		require.NotNil(t, sharing.WholeGPUs)
		if n := sharing.Replicas; n != nil {
			require.True(t, *n >= 1 && *n <= gpu.WholeFraction)
		}
		require.False(t, sharing.Strategy == v1beta1.MPS && sharing.Partitions != nil)
	})
}

// What nvidia.com/gpu is follows from the MIG strategy and from sharing.
func TestStrategies(t *testing.T) {
	const (
		sliced  = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}"
		mps     = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}"
		renamed = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 10}]}}"
		slices  = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}, {name: mig-1g.10gb, replicas: 4}, {name: mig-3g.40gb, replicas: 2}]}}"
	)
	for name, tt := range map[string]struct{ document, want string }{
		"nothing said":          {"version: v1", "Auto"},
		"none":                  {"flags: {migStrategy: none}", ""},
		"single":                {"flags: {migStrategy: single}", "Auto"},
		"mixed":                 {"flags: {migStrategy: mixed}", ""},
		"shared":                {sliced, "AutoReplica"},
		"none, shared":          {"{flags: {migStrategy: none}, " + sliced + "}", "GPUReplica"},
		"single, shared":        {"{flags: {migStrategy: single}, " + sliced + "}", "AutoReplica"},
		"mixed, shared":         {"{flags: {migStrategy: mixed}, " + sliced + "}", "GPUReplica"},
		"shared by MPS":         {mps, "GPUReplica"},
		"renamed":               {renamed, "Auto"},
		"shared partitions":     {slices, "GPUReplica"},
		"mixed and partitions":  {"{flags: {migStrategy: mixed}, " + slices + "}", "GPUReplica"},
		"single and partitions": {"{flags: {migStrategy: single}, " + slices + "}", "AutoReplica"},
	} {
		spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: []byte(tt.document)})
		require.NoError(t, err, name)
		assert.EqualValues(t, tt.want, ptr.Deref(spec.Rules[0].ExtendedResource, v1beta1.ExtendedResource{}).Device, name)
	}
	spec, _, err := readDevicePlugin(strict.Text{File: "f", Data: []byte(slices)})
	require.NoError(t, err)
	assert.Equal(t, int32(10), *spec.Rules[0].Sharing.Replicas)
	assert.Equal(t, []v1beta1.PartitionReplicas{{Profile: "1g.10gb", Count: 4}, {Profile: "3g.40gb", Count: 2}}, spec.Rules[0].Sharing.Partitions.Replicas)
	assert.Equal(t, v1beta1.MIGDevicePartitionReplica, spec.Rules[0].Sharing.Partitions.ExtendedResource.Device)
}
