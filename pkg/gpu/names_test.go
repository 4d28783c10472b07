package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

func TestNormalizePCIAddress(t *testing.T) {
	for given, want := range map[string]string{
		"0000:c1:00.0":      "0000:c1:00.0",
		"00000000:C1:00.0":  "0000:c1:00.0", // as NVML writes it
		"00000000:0A:1F.7":  "0000:0a:1f.7",
		" 0000:C1:00.0\n":   "0000:c1:00.0", // as files have it
		"00010000:01:00.0":  "10000:01:00.0",
		"10000:01:00.0":     "10000:01:00.0", // Intel VMD: five digits in sysfs too
		"FFFFFFFF:ff:1f.7":  "ffffffff:ff:1f.7",
		"a1b2:00:00.0":      "a1b2:00:00.0", // Hyper-V: any domain
		"0000A1B2:00:00.0 ": "a1b2:00:00.0",
	} {
		got, err := gpu.NormalizePCIAddress(given)
		require.NoError(t, err, given)
		assert.Equal(t, want, got, given)
	}
	for _, garbage := range []string{
		"", " ", "c1:00.0", "0000:c1:00", "0000:c1:00.8", "0000:c1:00.00", "000:c1:00.0", "0000:c1:0.0",
		"0000:g1:00.0", "0000-c1-00-0", "000000000:c1:00.0", "0000:c1:00.0\x00", "0000:c1:00.0/..", "GPU-8f6a", "0000:c1:00.0 0000:c2:00.0",
	} {
		got, err := gpu.NormalizePCIAddress(garbage)
		require.Error(t, err, "%q gave %q", garbage, got)
		assert.Contains(t, err.Error(), "0000:c1:00.0", "the error shows what is wanted")
		assert.Empty(t, got)
	}
}

func FuzzNormalizePCIAddress(f *testing.F) {
	for _, seed := range []string{"0000:c1:00.0", "00000000:C1:00.0", "FFFFFFFF:FF:1F.7", "c1:00.0", "0000:c1:00.0\x00", "K:\u212a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		got, err := gpu.NormalizePCIAddress(given)
		if err != nil {
			return
		}
		again, err := gpu.NormalizePCIAddress(got)
		require.NoError(t, err)
		require.Equal(t, got, again, "normal form of %q", given)
		shouted, err := gpu.NormalizePCIAddress(strings.ToUpper(got))
		require.NoError(t, err)
		require.Equal(t, got, shouted)
		require.Empty(t, validation.IsDNS1123Label(gpu.NameOf(got)))
	})
}

func TestGPUAndPoolName(t *testing.T) {
	g := gpu.GPU{PCIAddress: "0000:c1:00.0"}
	assert.Equal(t, "gpu-0000-c1-00-0", g.Name())
	assert.Equal(t, "gpu-0000-c1-00-0", gpu.Placement{GPU: g.PCIAddress, Type: gpu.TypeGPU}.Name())
	assert.Equal(t, "gpu-0000-c1-00-0", gpu.Placement{GPU: g.PCIAddress, Type: gpu.TypeMIG, Profile: "1g.10gb"}.GPUName())
	assert.Equal(t, "gpu-0000-c1-00-0-cpx-3", gpu.Placement{GPU: g.PCIAddress, Type: gpu.TypeXCP, Profile: "cpx", Start: 3}.Name())
	assert.Equal(t, "node-a", names.PoolName("node-a"))
}

// The device's name alone says which GPU it belongs to.
func TestGPUOfDevice(t *testing.T) {
	for _, address := range []string{"0000:c1:00.0", "10000:01:00.7", "ffffffff:ff:1f.0"} {
		whole := gpu.Placement{GPU: address, Type: gpu.TypeGPU}
		for _, p := range []gpu.Placement{
			whole, gpu.ShareOf(whole, gpu.ByMemory, gpu.Sharing{}),
			{GPU: address, Type: gpu.TypeMIG, Profile: "1g.10gb+me", Start: 4},
			{GPU: address, Type: gpu.TypeXCP, Profile: "cpx", Start: 3},
		} {
			assert.Equal(t, gpu.NameOf(address), gpu.OfDevice(p.Name()), p.Name())
			assert.Equal(t, address, gpu.AddressOf(p.Name()), p.Name())
		}
	}
	for _, odd := range []string{"", "gpu-0", "gpu-0000-c1-00-0x", "gpu-0000-c1-00-8", "mig-gpu-0000-c1-00-0"} {
		assert.Empty(t, gpu.OfDevice(odd), odd)
		assert.Empty(t, gpu.AddressOf(odd), odd)
	}
}

func TestPlacementNames(t *testing.T) {
	const gpuID = "0000:c1:00.0"
	for _, test := range []struct {
		profile string
		start   int
		want    string
	}{
		{"1g.10gb", 4, "gpu-0000-c1-00-0-mig-1g-10gb-4"},
		{"1g.10gb", 0, "gpu-0000-c1-00-0-mig-1g-10gb-0"},
		{"7g.141gb", 0, "gpu-0000-c1-00-0-mig-7g-141gb-0"},
		{"1g.10gb+me", 4, "gpu-0000-c1-00-0-mig-1g-10gb-plus-me-4"},
		{"2g.12gb+me", 2, "gpu-0000-c1-00-0-mig-2g-12gb-plus-me-2"},
		{"1g.24gb+me", 9, "gpu-0000-c1-00-0-mig-1g-24gb-plus-me-9"},
		{"1g.24gb-me", 9, "gpu-0000-c1-00-0-mig-1g-24gb-no-me-9"},
		{"1g.24gb+me.all", 9, "gpu-0000-c1-00-0-mig-1g-24gb-plus-me-all-9"},
		{"2g.48gb+gfx", 6, "gpu-0000-c1-00-0-mig-2g-48gb-plus-gfx-6"},
		{"1g.24gb", 11, "gpu-0000-c1-00-0-mig-1g-24gb-11"},
	} {
		placement := gpu.Placement{GPU: gpuID, Type: gpu.TypeMIG, Profile: test.profile, Start: test.start, Size: 1}
		assert.Equal(t, test.want, placement.Name(), test.profile)
		partition := gpu.Partition{GPU: gpuID, Type: gpu.TypeMIG, Profile: test.profile, Start: test.start, Size: 1}
		assert.Equal(t, test.want, partition.Name(), "the partition at the placement of %s", test.profile)
	}
}

func TestPartitionLabel(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb": "1g.10gb_9", "1g.24gb+me": "1g.24gb-plus-me_9", "1g.24gb-me": "1g.24gb-no-me_9", "1g.24gb+me.all": "1g.24gb-plus-me.all_9",
	} {
		assert.Equal(t, want, gpu.Partition{Profile: profile, Start: 9}.Label())
	}
}

// TestNamesOfAllProfiles: every profile of every known GPU makes names of a device and of its share,
// and a taint's value, that the API accepts, and a name that no other profile of the GPU makes.
func TestNamesOfAllProfiles(t *testing.T) {
	const longestAddress = "ffffffff:ff:1f.7"
	spelled := map[string]string{} // slug → profile, over all GPUs
	for _, key := range models.NVIDIAModels() {
		model, ok := models.NVIDIAModelByKey(key)
		require.True(t, ok)
		names := map[string]string{}
		for _, profile := range model.Profiles {
			slug := gpu.ProfileSlug(profile.Name)
			if other, ok := spelled[slug]; ok {
				assert.Equal(t, other, profile.Name, "two profiles are both spelt %s", slug)
			}
			spelled[slug] = profile.Name
			for _, start := range profile.Starts {
				placement := gpu.Placement{GPU: longestAddress, Type: gpu.TypeMIG, Profile: profile.Name, Start: start}
				name := placement.Name()
				assert.Empty(t, validation.IsDNS1123Label(name), "%s of %s", profile.Name, key)
				share := gpu.ShareOf(placement, gpu.ByFraction, gpu.Sharing{}).Name()
				assert.Empty(t, validation.IsDNS1123Label(share), "%s of %s", profile.Name, key)
				label := gpu.Partition{Profile: profile.Name, Start: start}.Label()
				assert.Empty(t, validation.IsValidLabelValue(label), "%s of %s", profile.Name, key)
				assert.NotContains(t, names, name, "%s of %s", profile.Name, key)
				names[name] = profile.Name
			}
		}
	}
	assert.Greater(t, len(spelled), 40)
}

func TestSortGPUs(t *testing.T) {
	var gpus []gpu.GPU
	for _, address := range []string{"10000:01:00.0", "0000:df:00.0", "1000:01:00.0", "0000:1b:00.1", "0000:1b:00.0", "0001:00:00.0"} {
		gpus = append(gpus, gpu.GPU{PCIAddress: address})
	}
	gpu.SortGPUs(gpus)
	var names, addresses []string
	for _, g := range gpus {
		names = append(names, g.Name())
		addresses = append(addresses, g.PCIAddress)
	}
	assert.Equal(t, []string{"0000:1b:00.0", "0000:1b:00.1", "0000:df:00.0", "0001:00:00.0", "1000:01:00.0", "10000:01:00.0"}, addresses)
	assert.IsIncreasing(t, names, "the scheduler goes through pools by name")
}
