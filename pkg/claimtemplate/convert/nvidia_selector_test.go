package convert

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

const (
	theirs = `device.attributes["gpu.nvidia.com"].`
	ours   = `device.attributes["gpu.tranche.dev"].`
)

// translated are selectors as NVIDIA's documentation, demos and tests write them, and others.
var translated = map[string]string{
	`device.attributes['gpu.nvidia.com'].profile == '1g.10gb'`:                                                                 ours + `profile == "1g.10gb"`,
	theirs + `productName.lowerAscii().matches('^.*a100.*$')`:                                                                  ours + `productName.lowerAscii().matches("^.*a100.*$")`,
	`device.driver == 'gpu.nvidia.com' && ` + theirs + `type == 'mig'`:                                                         `device.driver == "gpu.tranche.dev" && ` + ours + `type == "mig"`,
	`device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0`:                                                `device.capacity["gpu.tranche.dev"].?memory.orValue(quantity("0")).compareTo(quantity("40Gi")) >= 0`,
	`device.capacity['gpu.nvidia.com'].multiprocessors.isLessThan(quantity("30"))`:                                             `device.capacity["gpu.tranche.dev"].?computeUnits.orValue(quantity("0")).isLessThan(quantity("30"))`,
	`device.capacity['gpu.nvidia.com'].decoders.compareTo(quantity("0")) > 0`:                                                  `device.capacity["gpu.tranche.dev"].?decoders.orValue(quantity("0")).compareTo(quantity("0")) > 0`,
	theirs + `architecture == "Hopper" || "Ada Lovelace" == ` + theirs + `architecture`:                                        ours + `architecture == "Hopper" || "Ada Lovelace" == ` + ours + `architecture`,
	theirs + `architecture in ["Hopper", "Blackwell"]`:                                                                         ours + `architecture in ["Hopper", "Blackwell"]`,
	theirs + `architecture.lowerAscii() != "ampere"`:                                                                           ours + `architecture.lowerAscii() != "ampere"`,
	theirs + `?architecture.orValue("") == "Turing"`:                                                                           ours + `?architecture.orValue("") == "Turing"`,
	theirs + `driverVersion.compareTo(semver("580.0.0")) >= 0`:                                                                 ours + `driverVersion.compareTo(semver("580.0.0")) >= 0`,
	theirs + `driverVersion.compareTo(semver("580.0.0")) < 0`:                                                                  ours + `driverVersion.compareTo(semver("580.0.0")) < 0`,
	theirs + `cudaComputeCapability.compareTo(semver("8.9.0")) >= 0`:                                                           ours + `cudaComputeCapability.compareTo(semver("8.9.0")) >= 0`,
	theirs + `cudaComputeCapability.compareTo(semver("7.5.0")) < 0`:                                                            ours + `cudaComputeCapability.compareTo(semver("7.5.0")) < 0`,
	`"uuid" in device.attributes["gpu.nvidia.com"] && has(` + theirs + `profile)`:                                              `"uuid" in device.attributes["gpu.tranche.dev"] && has(` + ours + `profile)`,
	`"gpu.nvidia.com" in device.attributes`:                                                                                    `"gpu.tranche.dev" in device.attributes`,
	theirs + `cudaDriverVersion.isGreaterThan(semver("12.4.0"))`:                                                               ours + `cudaDriverVersion.isGreaterThan(semver("12.4.0"))`,
	`has(` + theirs + `cudaDriverVersion)`:                                                                                     `has(` + ours + `cudaDriverVersion)`,
	`has(device.capacity["gpu.nvidia.com"].memory) && has(` + theirs + `uuid)`:                                                 `has(device.capacity["gpu.tranche.dev"].memory) && has(` + ours + `uuid)`,
	`"memory" in device.capacity["gpu.nvidia.com"]`:                                                                            `"memory" in device.capacity["gpu.tranche.dev"]`,
	`device.attributes["gpu.nvidia.com"]["type"] == "gpu" || device.attributes[?"gpu.nvidia.com"].uuid.orValue("") == "GPU-1"`: ours + `type == "gpu" || ` + ours + `?uuid.orValue("") == "GPU-1"`,
	`device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:64" && ` + theirs + `type == "gpu"`:                      `device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:64" && ` + ours + `type == "gpu"`,
	`["A100", "H100"].exists(p, ` + theirs + `productName.contains(p))`:                                                        `["A100", "H100"].exists(p, ` + ours + `productName.contains(p))`,
	`"mig" in {` + theirs + `type: 1} && {"a": ` + theirs + `type}["a"] == "mig"`:                                              `"mig" in {` + ours + `type: 1} && {"a": ` + ours + `type}["a"] == "mig"`,
	`device.driver == "nic.example.com"`:                                                                                       `device.driver == "nic.example.com"`,
}

func TestSelector(t *testing.T) {
	for expression, want := range translated {
		got, err := translateSelector(expression, anyDevices)
		require.NoError(t, err, expression)
		assert.Equal(t, want, got)
		again, err := translateSelector(got, anyDevices)
		require.NoError(t, err)
		assert.Equal(t, got, again)
		compile(t, got)
	}
}

func TestSelectorRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		theirs + `brand == "Tesla"`:                                         "attribute brand: select productName",
		theirs + `index == 0 || ` + theirs + `minor == 0`:                   "attribute index: select uuid, or resource.kubernetes.io/pciBusID; attribute minor: select uuid",
		theirs + `partition2 == 1`:                                          "attribute partition2: Tranche has no such attribute",
		theirs + `type == "vfio"`:                                           "Tranche does not pass GPUs to virtual machines",
		theirs + `profile in ["1c.3g.20gb"]`:                                "profile 1c.3g.20gb is a compute instance, a part of a partition, which Tranche does not create: write 3g.20gb",
		`device.capacity["gpu.nvidia.com"].copyEngines > 1`:                 "capacity copyEngines: Tranche has no such capacity",
		`cel.bind(d, device.attributes["gpu.nvidia.com"], d.type == "mig")`: `write device.attributes["gpu.nvidia.com"].NAME`,
		`device.attributes["gpu.nvidia.com"]["ty" + "pe"] == "mig"`:         "reads attributes whose names are not literals",
		`device == "gpu.nvidia.com"`:                                        "reads attributes in a way that is not translated",
		`"vfio" == ` + theirs + `type`:                                      "type vfio: Tranche does not pass GPUs to virtual machines",
		`x{y: ` + theirs + `brand} == 1`:                                    "attribute brand: select productName",
		`"gpu.nvidia.com" ==`:                                               "is not valid CEL",
	} {
		got, err := translateSelector(expression, anyDevices)
		require.ErrorContains(t, err, want, expression)
		assert.Empty(t, got)
	}
	_, err := translateSelector(strings.Repeat(`device.capacity["gpu.nvidia.com"].memory.isLessThan(quantity("1")) || `, 140)+"true", anyDevices)
	require.ErrorContains(t, err, "is longer than 10240 characters after the translation: shorten it")
	_, err = translateSelector(theirs+`uuid == "MIG-1"`, migDevices)
	require.ErrorContains(t, err, "have no UUID until then")
}

// compile compiles an expression as the API server does, which also limits its cost.
func compile(t *testing.T, expression string) cel.CompilationResult {
	t.Helper()
	result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
	require.Nil(t, result.Error, expression)
	require.LessOrEqual(t, result.MaxCost, uint64(resourceapi.CELSelectorExpressionMaxCost), expression)
	return result
}

// device is a placement as each driver publishes it.
func device(t *testing.T, g *gpu.GPU, p gpu.Placement) (asTheirs, asOurs cel.Device) {
	t.Helper()
	own := publish.Attributes(g, p)
	attributes, capacity := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}, map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	ownCapacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	for name, a := range own {
		attributes[name] = a
	}
	for theirs, ours := range sharedCapacities {
		amount := map[string]int64{"memory": p.Memory, "computeUnits": p.ComputeUnits}[ours] + p.Engines[ours]
		capacity[resourceapi.QualifiedName(theirs)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(amount, resource.DecimalSI)}
		if amount > 0 { // what a device does not have, Tranche does not publish
			ownCapacity[resourceapi.QualifiedName(ours)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(amount, resource.DecimalSI)}
		}
	}
	return cel.Device{Driver: nvidiaDriver, Attributes: attributes, Capacity: capacity}, cel.Device{Driver: names.DriverName, Attributes: own, Capacity: ownCapacity}
}

// A selector matches the same devices of Tranche as it did of NVIDIA's driver.
func TestSelectsTheSame(t *testing.T) {
	matched := map[string]int{}
	for _, name := range []string{"h100x8", "a100-40x8"} {
		inventory, err := models.LoadInventory(name)
		require.NoError(t, err)
		g := inventory.Hardware(name)[0].WithMIG(gpu.MIGOn)
		for expression := range translated {
			selector, err := translateSelector(expression, anyDevices)
			require.NoError(t, err)
			before, after := compile(t, expression), compile(t, selector)
			for _, p := range g.Placements {
				asTheirs, asOurs := device(t, &g, p)
				want, _, errTheirs := before.DeviceMatches(t.Context(), asTheirs)
				got, _, errOurs := after.DeviceMatches(t.Context(), asOurs)
				assert.Equal(t, want, got, "%s on %s of %s", expression, p.Name(), name)
				if errTheirs == nil {
					assert.NoError(t, errOurs, "%s on %s of %s", expression, p.Name(), name)
				}
				if want {
					matched[expression]++
				}
			}
		}
	}
	assert.Greater(t, len(matched), len(translated)/2, "most of the selectors match something")
}

func FuzzSelector(f *testing.F) {
	for expression := range translated {
		f.Add(expression)
	}
	f.Add(strings.Repeat("(", 2000) + `"gpu.nvidia.com"`)
	f.Add(`{"gpu.nvidia.com": [device.attributes["gpu.nvidia.com"].type, x{y: b"\xff"}]}`)
	f.Fuzz(func(t *testing.T, expression string) {
		got, err := translateSelector(expression, anyDevices)
		if err != nil || got == expression {
			return
		}
		again, err := translateSelector(got, anyDevices)
		require.NoError(t, err)
		assert.Equal(t, got, again)
	})
}
