package claimconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim
)

func of(source resourceapi.AllocationConfigSource, driver, raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{Source: source, Requests: requests, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
	}}
}

// config is a ShareConfig with this limit.
func config(limit string) string {
	return `{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memoryLimit":` + limit + `}`
}

func TestRead(t *testing.T) {
	for limit, mib := range map[string]int64{
		`"8Gi"`: 8192, `"1Mi"`: 1, `"1.5Gi"`: 1536, `1048576`: 1, `"1500M"`: 1430, `"99999999999999999999P"`: 1<<43 - 1,
	} {
		got, err := Read([]resourceapi.DeviceAllocationConfiguration{of(fromClaim, names.DriverName, config(limit))})
		require.NoError(t, err, limit)
		assert.Equal(t, mib*gpu.MiB, got.Of("gpu"), limit)
	}
	const amount = "it must be an amount of at least 1Mi, as in 8Gi"
	for raw, message := range map[string]string{
		"":                      "it is empty",
		"{":                     "claim's configuration for gpu.tranche.dev",
		"[]":                    "it must be an object",
		`{"memoryLimit":"8Gi"}`: `apiVersion: is "", it must be tranche.dev/v1beta1`,
		strings.Replace(config(`"8Gi"`), "v1beta1", "v1", 1):                                         `apiVersion: is "tranche.dev/v1", it must be tranche.dev/v1beta1`,
		`{"apiVersion":"gpu.nvidia.com/v1beta1","kind":"MigDeviceConfig"}`:                           "kind: is \"MigDeviceConfig\", it must be ShareConfig",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"` + strings.Repeat("x", 5000) + `"}`:            `xxx", it must be ShareConfig`,
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig"}`:                                  "memoryLimit: is missing",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memorylimit":"8Gi"}`:              "did you mean memoryLimit?",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memoryLimit":1,"memoryLimit":2}`:  "memoryLimit: duplicate key",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memoryLimit":"8Gi","replicas":4}`: "replicas: unknown key",
		config(`"0"`): amount, config(`"1Ki"`): amount, config(`-1`): amount, config(`"8GiB"`): amount, config(`null`): "is missing",
		config(`{"a":1}`): amount, config(`["8Gi"]`): amount, config(`true`): amount, config(`""`): amount,
		config(`"1e1000000000"`): amount, config(`"1e-1000000000"`): amount, config(`"` + strings.Repeat("9", 5000) + `"`): amount,
	} {
		got, err := Read([]resourceapi.DeviceAllocationConfiguration{of(fromClaim, "nic.example.com", "{"), of(fromClaim, names.DriverName, raw)})
		require.ErrorContains(t, err, message, raw)
		require.ErrorContains(t, err, "status.allocation.devices.config[1]: ", raw)
		assert.Less(t, len(err.Error()), 1000, raw)
		assert.Zero(t, got.Of("gpu"))
	}
	_, err := Read([]resourceapi.DeviceAllocationConfiguration{of(fromClass, names.DriverName, "{}")})
	require.ErrorContains(t, err, "device class's configuration")
}

// The claim's counts before that of its class, and the last of several.
func TestOf(t *testing.T) {
	all, err := Read([]resourceapi.DeviceAllocationConfiguration{
		of(fromClaim, names.DriverName, config(`"1Gi"`), "a"),
		of(fromClaim, names.DriverName, config(`"2Gi"`), "a", "b/small"),
		of(fromClaim, "nic.example.com", `{"kind":"Nic"}`),
		of(fromClass, names.DriverName, config(`"3Gi"`), "a", "b", "c"),
		of(fromClass, names.DriverName, config(`"4Gi"`), "c/x"),
		{},
	})
	require.NoError(t, err)
	for request, gib := range map[string]int64{"a": 2, "a/any": 2, "b/small": 2, "b/large": 3, "b": 3, "c": 3, "c/x": 4, "d": 0, "": 0} {
		assert.Equal(t, gib<<30, all.Of(request), request)
	}
	everything, err := Read([]resourceapi.DeviceAllocationConfiguration{of(fromClaim, names.DriverName, config(`"1Gi"`))})
	require.NoError(t, err)
	assert.EqualValues(t, 1<<30, everything.Of("d/e"))
	assert.Zero(t, Limits(nil).Of("d"))
}

// What this package writes, it reads.
func TestNew(t *testing.T) {
	c := New(1536)
	assert.Equal(t, config(`"1536Mi"`), string(c.Opaque.Parameters.Raw))
	got, err := Read([]resourceapi.DeviceAllocationConfiguration{{Source: fromClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration}})
	require.NoError(t, err)
	assert.EqualValues(t, 1536<<20, got.Of("gpu"))
}
