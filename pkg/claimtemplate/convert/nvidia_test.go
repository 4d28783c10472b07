package convert

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/strict"
	"github.com/tranche-dev/tranche/test/golden"
)

// Each file in testdata is an object, its golden file what becomes of it, after the notes.
func TestClaims(t *testing.T) {
	golden.Files(t, "testdata/claims/*.yaml", func(t *testing.T, _ string, data []byte) string {
		o, err := Claims(kindOf(t, data), strict.Text{File: "f", Data: data})
		require.NoError(t, err)
		return "# " + strings.Join(o.Notes, "\n# ") + "\n" + string(o.YAML)
	})
}

func kindOf(t *testing.T, data []byte) string {
	t.Helper()
	var meta metav1.TypeMeta
	require.NoError(t, yaml.Unmarshal(data, &meta))
	return meta.Kind
}

// of is a claim with these devices.
func of(devices string) strict.Text {
	return strict.Text{File: "f", Data: []byte("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  devices: " + devices + "\n")}
}

func opaque(parameters string) string {
	return "{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com}}], config: [{requests: [a], opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, " + parameters + "}}}]}"
}

func TestClaimsRefused(t *testing.T) {
	for devices, want := range map[string]string{
		"{requests: [{name: a, exactly: {deviceClassName: vfio.gpu.nvidia.com}}]}":                                                                                                            "is vfio.gpu.nvidia.com, and Tranche does not pass GPUs to virtual machines: leave those nodes to NVIDIA's driver (line 5)",
		"{requests: [{name: a, exactly: {deviceClassName: mig.nvidia.com, allocationMode: All}}]}":                                                                                            "spec.devices.requests[0].exactly.allocationMode: is All",
		"{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {shares: 2}}}}]}":                                                                              "capacity.requests.shares: is a number of equal shares: use class gpu-fraction-share-nvidia.tranche.dev",
		"{requests: [{name: a, exactly: {deviceClassName: mig.nvidia.com, capacity: {requests: {copyEngines: 2}}}}]}":                                                                         "Tranche has no such capacity",
		"{requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: 'device.attributes[\"gpu.nvidia.com\"].brand == \"Tesla\"'}}]}]}]}": "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: attribute brand: select productName",
		"{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com}}], constraints: [{matchAttribute: gpu.nvidia.com/partition2}]}":                                                     "spec.devices.constraints[0].matchAttribute: gpu.nvidia.com/partition2: Tranche has no such attribute",
		opaque("kind: GpuConfig, sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi, defaultPerDevicePinnedMemoryLimit: {'0': 1Gi}}}"): `write a claim for each container, with class gpu-memory-share-nvidia.tranche.dev and capacity.requests {memory: 10Gi, computePercent: "50"}, ` +
			"for nodes whose PartitionProfile has sharing.strategy MPS; limits for single devices",
		"{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {memory: 1Gi, multiprocessors: 5}}}}]}":                                                                        "capacity.requests.multiprocessors: Tranche has no such capacity",
		"{requests: [{name: a, exactly: {deviceClassName: custom, capacity: {requests: {gpu.nvidia.com/copyEngines: 2}}}}]}":                                                                                  "capacity.requests.gpu.nvidia.com/copyEngines: Tranche has no such capacity",
		"{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {memory: 1Gi}}, selectors: [{cel: {expression: 'device.attributes[\"gpu.nvidia.com\"].type == \"gpu\"'}}]}}]}": "attribute type: the class selects shares: remove it",
		opaque("kind: GpuConfig, sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50}}"):                                                                                                   `{fraction: "0.5", computePercent: "50"}, for nodes whose PartitionProfile has sharing.strategy MPS (line 5)`,
		opaque("kind: GpuConfig, sharing: {strategy: MPS}"):                                                                                                                                                   `class gpu-fraction-share-nvidia.tranche.dev and capacity.requests {fraction: "0.5"}`,
		opaque("kind: MigDeviceConfig, sharing: {strategy: MPS}"):                                                                                                                                             "MPS serves whole GPUs only: remove it",
		opaque("kind: GpuConfig, sharing: {strategy: Magic}"):                                                                                                                                                 `has strategy "Magic", it can be TimeSlicing or MPS`,
		opaque("kind: GpuConfig, sharing: {strategie: MPS}"):                                                                                                                                                  "did you mean strategy?",
		opaque("kind: VfioDeviceConfig"):                                     `has parameters of kind "VfioDeviceConfig", which have no counterpart`,
		"{requests: [{name: a, exactly: {deviceClasName: gpu.nvidia.com}}]}": "did you mean deviceClassName?",
		"{requests: [{name: a, exactly: {deviceClassName: mig.nvidia.com, selectors: [{cel: {expression: 'device.attributes[\"gpu.nvidia.com\"].uuid == \"MIG-1\"'}}]}}]}": "have no UUID until then",
	} {
		o, err := Claims(claimKind, of(devices))
		require.ErrorContains(t, err, want, devices)
		assert.Nil(t, o)
	}
	_, err := Claims(templateKind, strict.Text{File: "f", Data: []byte("apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaimTemplate\nspec: {spec: {resourceClassName: gpu.nvidia.com}}\n")})
	require.ErrorContains(t, err, `apiVersion is "resource.k8s.io/v1alpha2", it can be resource.k8s.io/v1, v1beta2, v1beta1 or v1alpha3`)
	_, err = Claims(claimKind, strict.Text{File: "f", Data: []byte("apiVersion: resource.k8s.io/v1beta1\nspec: {devices: {requests: [{name: a, deviceClassName: vfio.gpu.nvidia.com}]}}\n")})
	require.ErrorContains(t, err, "leave those nodes to NVIDIA's driver")
	assert.NotContains(t, err.Error(), "(line", "lines of the converted object are others")
}

// What is not NVIDIA's stays, and what its chart or a pod brings is not printed.
func TestConvertLeaves(t *testing.T) {
	for object, want := range map[string]struct {
		note string
		same bool
	}{
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: [{name: a, exactly: {deviceClassName: nic.example.com}}]}} # own\n": {"names none of the classes and attributes of NVIDIA's driver", true},
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: [{name: a, exactly: {deviceClassName: compute-domain-default-channel.nvidia.com}}]}}\n": {
			"compute-domain-default-channel.nvidia.com stays with NVIDIA's driver", true},
		"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: [{name: a, deviceClassName: nic.example.com}]}} # own\n":    {"the object is unchanged", true},
		"apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nspec: {numNodes: 2}\n":                                                                                  {"a ComputeDomain stays with NVIDIA's driver", true},
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: nic}\nspec: {extendedResourceName: a/b, config: [{opaque: {driver: nic, parameters: {}}}]}\n":     {"names none of the classes", true},
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.nvidia.com}\n":                                                                                {"class gpu-nvidia.tranche.dev of Tranche's chart is in its place", false},
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mig.nvidia.com}\n":                                                                                {"class gpu-mig.tranche.dev of Tranche's chart is in its place", false},
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: vfio.gpu.nvidia.com}\n":                                                                           {"has no counterpart", false},
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {annotations: {resource.kubernetes.io/pod-claim-name: a}}\nspec: {devices: {requests: [{name: a}]}}\n": {"was made for a pod from a template", false},
	} {
		o, err := Claims(kindOf(t, []byte(object)), strict.Text{File: "f", Data: []byte(object)})
		require.NoError(t, err, object)
		require.NotEmpty(t, o.Notes)
		assert.Contains(t, strings.Join(o.Notes, "\n"), want.note)
		if want.same {
			assert.Equal(t, object, string(o.YAML))
		} else {
			assert.Empty(t, o.YAML)
		}
	}
}

// Nothing that is NVIDIA's is left, if it is the only such thing of a claim, too.
func TestNothingOfNVIDIAsDriverIsLeft(t *testing.T) {
	request := func(fields string) string {
		return "requests: [{name: a, exactly: {deviceClassName: custom, " + fields + "}}]"
	}
	for _, devices := range []string{
		request("capacity: {requests: {gpu.nvidia.com/memory: 1Gi}}"), request("tolerations: [{key: gpu.nvidia.com/xid, operator: Exists}]"),
		request(`selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]`), "constraints: [{matchAttribute: gpu.nvidia.com/parentUUID}]",
		"constraints: [{distinctAttribute: gpu.nvidia.com/uuid}]", "config: [{opaque: {driver: gpu.nvidia.com, parameters: {kind: GpuConfig}}}]",
	} {
		o, err := Claims(claimKind, of("{"+devices+"}"))
		require.NoError(t, err)
		assert.NotContains(t, string(o.YAML), "gpu.nvidia.com")
		assert.Contains(t, o.Notes, "a spec cannot be changed: delete the ResourceClaim that exists, and create this one", devices)
	}
}

// Any claim is refused, or becomes one that API types can be decoded from and that asks nothing of
// NVIDIA's driver.
func FuzzClaims(f *testing.F) {
	golden.Seeds(f, "testdata/claims/*.yaml")
	f.Add([]byte("apiVersion: resource.k8s.io/v1beta1\nspec: {spec: {devices: {requests: [null, 1, {}, {exactly: null}]}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range ClaimKinds {
			o, err := Claims(kind, strict.Text{File: "f", Data: data})
			if err != nil || len(o.YAML) == 0 || string(o.YAML) == string(data) || kind != claimKind {
				continue
			}
			var claim resourceapi.ResourceClaim
			require.NoError(t, yaml.UnmarshalStrict(o.YAML, &claim))
			for _, r := range claim.Spec.Devices.Requests {
				if r.Exactly != nil {
					assert.NotContains(t, []string{wholeClass, migClass, vfioClass}, r.Exactly.DeviceClassName)
				}
			}
		}
	})
}
