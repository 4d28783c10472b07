package demo_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/allocator"
)

// settingsOf is how GPUs are shared in the demo of a folder: as the profile in
// its settings says, by default if there is none.
func settingsOf(t *testing.T, folder string) *profile.Profile {
	t.Helper()
	file := filepath.Join(folder, "settings", "values.yaml")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return profile.Unset()
	}
	require.NoError(t, err)
	var values struct {
		Profiles map[string]any `json:"partitionProfiles"`
	}
	require.NoError(t, yaml.Unmarshal(data, &values))
	require.Len(t, values.Profiles, 1, file)
	var read *profile.Profile
	for name, spec := range values.Profiles {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.ProfileKind,
			"metadata": map[string]any{"name": name}, "spec": spec,
		})
		require.NoError(t, err)
		read, err = profile.Parse(file, text)
		require.NoError(t, err)
	}
	return read
}

// first is the device of a grant that has only one.
func first(t *testing.T, grant *allocator.Grant) resourceapi.DeviceRequestAllocationResult {
	t.Helper()
	require.NotNil(t, grant)
	require.Len(t, grant.Result.Devices.Results, 1)
	return grant.Result.Devices.Results[0]
}

// Two halves fill a GPU, whichever namespaces they are of; a third begins the
// next. Partitions have the others.
func TestHalfGPUs(t *testing.T) {
	c := newCluster(t, "sharing-half-gpu")
	both := templates(t, "sharing-half-gpu/sharing-half-gpu.yaml")
	require.Len(t, both, 2)
	mine, theirs := first(t, c.ask(nvidia, both[0])), first(t, c.ask(nvidia, both[1]))
	assert.Equal(t, mine.Device, theirs.Device)
	assert.NotEqual(t, mine.ShareID, theirs.ShareID)
	assert.NotEqual(t, gpu.OfDevice(mine.Device), gpu.OfDevice(first(t, c.ask(nvidia, both[0])).Device))

	small := template(t, "mig/mig.yaml")
	for range 6 * 7 {
		require.NotNil(t, c.ask(nvidia, small))
	}
	assert.Nil(t, c.ask(nvidia, small), "two of the eight GPUs are shared")
}

// What is asked for by memory and by fraction is on two GPUs.
func TestMemoryBesideFraction(t *testing.T) {
	c := newCluster(t, "sharing-memory")
	half := templates(t, "sharing-half-gpu/sharing-half-gpu.yaml")[0]
	memory := template(t, "sharing-memory/sharing-memory.yaml")
	assert.NotEqual(t, gpu.OfDevice(first(t, c.ask(nvidia, half)).Device), gpu.OfDevice(first(t, c.ask(nvidia, memory)).Device))
}

func TestTwoGPUs(t *testing.T) {
	c := newCluster(t, "sharing-two-gpus")
	claim := template(t, "sharing-two-gpus/sharing-two-gpus.yaml")
	for range 2 {
		grant := c.ask(nvidia, claim)
		require.NotNil(t, grant)
		require.Len(t, grant.Devices(), 2)
		assert.NotEqual(t, grant.Devices()[0], grant.Devices()[1])
	}
	gpus := map[string]bool{}
	for _, grant := range c.Held() {
		for _, result := range grant.Result.Devices.Results {
			gpus[gpu.OfDevice(result.Device)] = true
		}
	}
	assert.Len(t, gpus, 2, "the second pair has the other halves")
}

func TestReplicas(t *testing.T) {
	c := newCluster(t, "sharing-replicas")
	claim := template(t, "sharing-replicas/sharing-replicas.yaml")
	gpus := map[string]int{}
	for range profile.DefaultReplicas {
		gpus[gpu.OfDevice(first(t, c.ask(nvidia, claim)).Device)]++
	}
	assert.Len(t, gpus, 1)
	assert.NotContains(t, gpus, gpu.OfDevice(first(t, c.ask(nvidia, claim)).Device))
}

// A GPU has as many pods as their requests fill, whatever their limits are.
func TestBurst(t *testing.T) {
	c := newCluster(t, "sharing-burst")
	claim := template(t, "sharing-burst/sharing-burst.yaml")
	one := first(t, c.ask(nvidia, claim))
	assert.Equal(t, one.Device, first(t, c.ask(nvidia, claim)).Device)
	asked, err := claimconfig.Read([]resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, Requests: claim.Spec.Spec.Devices.Config[0].Requests, DeviceConfiguration: claim.Spec.Spec.Devices.Config[0].DeviceConfiguration,
	}})
	require.NoError(t, err)
	assert.EqualValues(t, 32<<30, asked.Of("gpu"))
	assert.Nil(t, newCluster(t, "sharing-memory").ask(nvidia, claim), "a profile must allow it")
}

// Pods fill one partition before another is cut, each with 10 GiB of 40.
func TestSharedPartition(t *testing.T) {
	c := newCluster(t, "sharing-mig")
	claim := template(t, "sharing-mig/sharing-mig.yaml")
	one := first(t, c.ask(nvidia, claim))
	assert.Contains(t, one.Device, "-mig-3g-40gb-")
	for range 2 {
		assert.Equal(t, one.Device, first(t, c.ask(nvidia, claim)).Device)
	}
	assert.NotEqual(t, one.Device, first(t, c.ask(nvidia, claim)).Device)
}
