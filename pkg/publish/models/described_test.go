package models

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

const rtx5080 = `productName: NVIDIA GeForce RTX 5080, architecture: Blackwell, memory: 15839Mi, computeUnits: 84`

func TestDescribedGPU(t *testing.T) {
	inv, err := ParseInventory([]byte(`gpus: [{` + rtx5080 + `, pciDevice: "0x2c02", count: 2, numaNode: 1}, {productName: NVIDIA GB11, architecture: Blackwell, memory: 0, computeUnits: 1, numaNode: 1023}]`))
	require.NoError(t, err)
	gpus := inv.Hardware("node-a")
	require.Len(t, gpus, 3)
	assert.NotEqual(t, gpus[0].UUID, gpus[1].UUID)
	assert.Zero(t, gpus[2].Memory, "it has that of the host")
	for _, g := range gpus[:2] {
		assert.Equal(t, gpu.NVIDIA, g.Vendor)
		assert.Equal(t, "NVIDIA GeForce RTX 5080", g.ProductName)
		assert.Equal(t, "Blackwell", g.Architecture)
		assert.Equal(t, "12.0", g.CUDAComputeCapability)
		assert.Equal(t, "0x2C0210DE", g.PCIID)
		assert.EqualValues(t, 1, *g.NUMANode)
		require.Len(t, g.Placements, 1, "it has no MIG")
		assert.Equal(t, gpu.TypeGPU, g.Placements[0].Type)
		assert.EqualValues(t, 15839<<20, g.Placements[0].Memory, "nothing is taken off")
		assert.EqualValues(t, 84, g.Placements[0].ComputeUnits)
	}
}

// A name that leaves out the size or the board is that of the only model that it begins.
func TestShortNames(t *testing.T) {
	for name, want := range map[string]string{
		"T4": "T4-16GB", "A10": "A10-24GB", "A10G": "A10G-24GB", "L4": "L4-24GB", "L40": "L40-48GB", "L40S": "L40S-48GB",
		"RTX-PRO-5000": "RTX-PRO-5000-Blackwell-48GB", "H200-141GB": "H200-141GB", "MI300X": "MI300X",
	} {
		got, err := fullKey(name)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := fullKey("GH")
	assert.ErrorContains(t, err, "unknown model", "a name ends at a hyphen")
}

func TestBrokenDescriptionsNameTheKey(t *testing.T) {
	for entry, want := range map[string]string{
		rtx5080 + `, model: L4-24GB`:                                                    "gpus[0].productName: the tables have that of L4-24GB",
		`model: L4, computeUnits: 58`:                                                   "gpus[0].computeUnits: the tables have that of L4-24GB",
		`model: MI210, memory: 64Gi`:                                                    "gpus[0].memory: the tables have that of MI210",
		`architecture: Ada Lovelace, memory: 8Gi, computeUnits: 20`:                     `gpus[0].productName: "" is not the name`,
		`productName: "a\nb", architecture: Ada Lovelace, memory: 8Gi`:                  "gpus[0].productName:",
		`productName: NVIDIA H100 80GB HBM3`:                                            "gpus[0].productName: NVIDIA H100 80GB HBM3 has MIG; use model: H100-80GB",
		`productName: NVIDIA X, memory: 8Gi, computeUnits: 20`:                          `gpus[0].architecture: "" is none of Ada Lovelace,`,
		`productName: NVIDIA X, architecture: gfx90a`:                                   `gpus[0].architecture: "gfx90a" is none of Ada Lovelace,`,
		`productName: NVIDIA X, architecture: Ada Lovelace, cudaComputeCapability: "8"`: `gpus[0].cudaComputeCapability: "8" is not a version`,
		`productName: NVIDIA X, architecture: Ada Lovelace, computeUnits: 20`:           "gpus[0].memory: missing",
		`productName: NVIDIA X, architecture: Ada Lovelace, memory: -1`:                 "gpus[0].memory: -1 is not between 0",
		`productName: NVIDIA X, architecture: Ada Lovelace, memory: 1Ei`:                "gpus[0].memory: 1Ei is not between",
		`productName: NVIDIA X, architecture: Ada Lovelace, memory: much`:               "not a valid inventory",
		`productName: NVIDIA X, architecture: Ada Lovelace, memory: 8Gi`:                "gpus[0].computeUnits: 0 is not between",
		`productName: NVIDIA X, architecture: Ada Lovelace, computeUnits: -1`:           "gpus[0].memory: missing",
		rtx5080 + `, pciDevice: "2c02"`:                                                 `gpus[0].pciDevice: "2c02" is not an id`,
		rtx5080 + `, migMode: enabled`:                                                  "gpus[0].migMode: NVIDIA GeForce RTX 5080 has no MIG",
		rtx5080 + `, computeMode: CPX`:                                                  "gpus[0]: computeMode, memoryMode and virtualFunction are for AMD's",
		rtx5080 + `, count: 0`:                                                          "gpus[0].count: 0",
	} {
		_, err := ParseInventory([]byte("gpus: [{" + entry + "}]"))
		assert.ErrorContains(t, err, want, entry)
	}
}
