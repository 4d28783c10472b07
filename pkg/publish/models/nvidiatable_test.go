package models

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableIsConsistent(t *testing.T) {
	sources := loadTable().Sources
	require.Len(t, NVIDIAModels(), 50)
	all, err := OneOfEach()
	require.NoError(t, err)
	require.Len(t, all, len(NVIDIAModels())+len(AMDModels()))
	for _, key := range NVIDIAModels() {
		t.Run(key, func(t *testing.T) {
			m, ok := NVIDIAModelByKey(key)
			require.True(t, ok)
			assert.NotEmpty(t, m.Sources)
			for _, s := range m.Sources {
				assert.Contains(t, sources, s)
			}
			assert.Equal(t, uint32(0x10de), m.DeviceID()&0xffff)
			assert.NotZero(t, m.DeviceID()>>16)
			assert.Equal(t, slices.Contains(m.Sources, "NO-MEMORY"), m.MemoryMiB == 0)
			major, minor := m.ComputeCapability()
			assert.GreaterOrEqual(t, major, 7)
			assert.Equal(t, m.CUDAComputeCapability, fmt.Sprintf("%d.%d", major, minor))
			assert.Equal(t, m.HasMIG(), m.MemorySlices > 0)
			seen := map[int]bool{}
			for i := range m.Profiles {
				checkProfile(t, m, &m.Profiles[i])
				assert.False(t, seen[m.Profiles[i].ID], "profile id %d twice", m.Profiles[i].ID)
				seen[m.Profiles[i].ID] = true
			}
		})
	}
}

// A variant has the partitions of its model, with as many SMs as it has itself.
func TestVariants(t *testing.T) {
	sms := map[string][]int{}
	for key := range map[string]bool{"A800-80GB": true, "H20-96GB": true, "H100-PCIE-80GB": true} {
		m, ok := NVIDIAModelByKey(key)
		require.True(t, ok)
		of, ok := NVIDIAModelByKey(m.ProfilesOf.Model)
		require.True(t, ok)
		require.Len(t, m.Profiles, len(of.Profiles))
		for i, p := range m.Profiles {
			sms[key] = append(sms[key], p.Multiprocessors)
			assert.Equal(t, "doc", p.Confidence)
			assert.Equal(t, m.Sources, p.Sources)
			assert.Equal(t, of.Profiles[i].Starts, p.Starts)
		}
	}
	assert.Equal(t, map[string][]int{
		"A800-80GB": {14, 14, 14, 28, 42, 56, 98}, "H20-96GB": {8, 8, 14, 18, 34, 36, 78}, "H100-PCIE-80GB": {12, 12, 22, 26, 50, 54, 114},
	}, sms)
}

func checkProfile(t *testing.T, m *NVIDIAModel, p *Profile) {
	t.Helper()
	assert.Contains(t, []string{"nvml", "lgip", "doc", "derived"}, p.Confidence, p.Name)
	assert.NotEmpty(t, p.Sources, p.Name)
	for _, s := range p.Sources {
		assert.Contains(t, loadTable().Sources, s, p.Name)
	}
	assert.Zero(t, m.MemorySlices%p.Size, "%s: ids are counted in whole pieces", p.Name)
	for i, s := range p.Starts {
		assert.GreaterOrEqual(t, s, 0, p.Name)
		assert.LessOrEqual(t, s+p.Size, m.MemorySlices, p.Name)
		assert.Zero(t, s%p.Size, p.Name)
		if i > 0 {
			assert.Greater(t, s, p.Starts[i-1], p.Name)
		}
	}
	for _, memory := range append(slices.Clone(p.OtherMemoryMiB), p.MemoryMiB) {
		assert.NotZero(t, memory, p.Name)
		assert.LessOrEqual(t, memory, m.MemoryMiB, p.Name)
	}
	assert.NotContains(t, p.OtherMemoryMiB, p.MemoryMiB, p.Name)
}
