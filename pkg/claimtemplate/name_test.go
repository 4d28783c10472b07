package claimtemplate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

var valid = map[string]Request{
	"tranche-fraction-500":                          {Vendor: gpu.NVIDIA, Fraction: 500, Count: 1},
	"tranche-fraction-1":                            {Vendor: gpu.NVIDIA, Fraction: 1, Count: 1},
	"tranche-fraction-1000":                         {Vendor: gpu.NVIDIA, Fraction: 1000, Count: 1},
	"tranche-memory-2000mi":                         {Vendor: gpu.NVIDIA, Memory: 2000, Count: 1},
	"tranche-memory-1048576mi":                      {Vendor: gpu.NVIDIA, Memory: MostMemory, Count: 1},
	"tranche-memory-1mi-limit-2mi-x2":               {Vendor: gpu.NVIDIA, Memory: 1, Limit: 2, Count: 2},
	"tranche-memory-4096mi-limit-8192mi-compute-30": {Vendor: gpu.NVIDIA, Memory: 4096, Limit: 8192, Compute: 30, Count: 1},
	"tranche-memory-4096mi-limit-8192mi-mps":        {Vendor: gpu.NVIDIA, Memory: 4096, Limit: 8192, Count: 1, MPS: true},
	"tranche-fraction-500-x2":                       {Vendor: gpu.NVIDIA, Fraction: 500, Count: 2},
	"tranche-fraction-500-mps":                      {Vendor: gpu.NVIDIA, Fraction: 500, Count: 1, MPS: true},
	"tranche-memory-1mi-compute-30":                 {Vendor: gpu.NVIDIA, Memory: 1, Compute: 30, Count: 1},
	"tranche-amd-memory-4000mi":                     {Vendor: gpu.AMD, Memory: 4000, Count: 1},
	"tranche-amd-gpu-x16.type-mi300x":               {Vendor: gpu.AMD, Count: 16, Terms: []Term{{Type, "mi300x"}}},
	"tranche-gpu.type-a100-sxm4.nottype-t4.uuid-gpu-5.notuuid-0": {Vendor: gpu.NVIDIA, Count: 1, Terms: []Term{
		{Type, "a100-sxm4"}, {NotType, "t4"}, {UUID, "gpu-5"}, {NotUUID, "0"},
	}},
}

func TestNames(t *testing.T) {
	for name, want := range valid {
		got, err := Parse(name)
		require.NoError(t, err, name)
		assert.Equal(t, &want, got, name)
		assert.Equal(t, name, want.String())
	}
}

func TestNamesThatStateNoAmount(t *testing.T) {
	for name, message := range map[string]string{
		"":                                            "the name has no amount",
		"half":                                        "the name has no amount",
		"tranche-":                                    "the name has no amount",
		"tranche-fraction-0.5":                        `"5": use type`,
		"tranche-fraction--1":                         "the name has no amount",
		"tranche-memory-2000":                         "the name has no amount",
		"tranche-fraction-500-limit-2mi":              "the name has no amount",
		"tranche-memory-2mi-limit-2mi":                "the memory limit must be above the amount",
		"tranche-memory-2mi-limit-1mi":                "the memory limit must be above the amount",
		"tranche-memory-2mi-limit-0mi":                "the name of this amount is tranche-memory-2mi",
		"tranche-memory-2mi-limit-1048577mi":          "limit is 1048577, and it must be from 1 to 1048576",
		"tranche-memory-nan":                          "the name has no amount",
		"tranche-memory-1e9mi":                        "the name has no amount",
		"tranche-fraction-500-mps-x2":                 "the name has no amount",
		"tranche-fraction-0":                          "the name of this amount is tranche-gpu",
		"tranche-fraction-0500":                       "the name of this amount is tranche-fraction-500",
		"tranche-fraction-500-x1":                     "the name of this amount is tranche-fraction-500",
		"tranche-fraction-500-compute-0":              "the name of this amount is tranche-fraction-500",
		"tranche-fraction-1001":                       "fraction is 1001, and it must be from 1 to 1000",
		"tranche-memory-1048577mi":                    "memory is 1048577, and it must be from 1 to 1048576",
		"tranche-memory-99999999999999999mi":          "memory is 99999999999999999",
		"tranche-memory-9999999999999999999mi":        "number 9999999999999999999 is too large",
		"tranche-memory-1mi-compute-101":              "compute is 101, and it must be from 1 to 100",
		"tranche-gpu-compute-10":                      "compute can be limited only for shares of NVIDIA GPUs",
		"tranche-amd-memory-1mi-compute-10":           "compute can be limited only for shares of NVIDIA GPUs",
		"tranche-gpu-x0":                              "the number of GPUs is 0, and it must be from 1 to 16",
		"tranche-gpu-x17":                             "the number of GPUs is 17, and it must be from 1 to 16",
		"tranche-gpu-mps":                             "MPS serves only a share of one NVIDIA GPU",
		"tranche-fraction-500-x2-mps":                 "MPS serves only a share of one NVIDIA GPU",
		"tranche-gpu.model-a100":                      `"model": use type, nottype, uuid or notuuid`,
		"tranche-gpu.type":                            `"" is neither part of a product name nor a UUID`,
		"tranche-gpu.type-A100":                       `"A100" is neither part of a product name`,
		`tranche-gpu.type-a"`:                         "is neither part of a product name",
		"tranche-gpu.":                                `"": use type`,
		"tranche-gpu.type-" + strings.Repeat("a", 64): "is neither part of a product name",
		"tranche-gpu" + strings.Repeat(".type-"+strings.Repeat("a", 50), 5): "and the limit is 253",
	} {
		_, err := Parse(name)
		assert.ErrorContains(t, err, message, name)
	}
}

// A name has one meaning, and a meaning has one name: a thousand names for one amount would be
// a thousand templates.
func FuzzName(f *testing.F) {
	for name := range valid {
		f.Add(name)
	}
	f.Add("tranche-gpu" + strings.Repeat(".type-a-", 30) + "b")
	f.Add("tranche-gpu" + strings.Repeat(".nottype-a-1", 20))
	f.Add("tranche-fraction-0500")
	f.Add("tranche-memory-1mi..type-a")
	f.Fuzz(func(t *testing.T, name string) {
		r, err := Parse(name)
		if err != nil {
			return
		}
		require.Equal(t, name, r.String())
		require.LessOrEqual(t, len(name), longestName)
		spec := r.Spec()
		exactly := spec.Devices.Requests[0].Exactly
		require.LessOrEqual(t, exactly.Count, int64(MostDevices))
		require.Nil(t, exactly.AdminAccess)
		for _, s := range exactly.Selectors {
			compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(s.CEL.Expression, dracel.Options{})
			require.Nil(t, compiled.Error)
			require.LessOrEqual(t, compiled.MaxCost, uint64(resourceapi.CELSelectorExpressionMaxCost), s.CEL.Expression)
			require.LessOrEqual(t, len(s.CEL.Expression), resourceapi.CELSelectorExpressionMaxLength)
		}
	})
}
