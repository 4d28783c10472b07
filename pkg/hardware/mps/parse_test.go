package mps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMemory(t *testing.T) {
	for answer, want := range map[string]float64{
		"3G": 3072, "1408M": 1408, "1408M\n": 1408, "2GB": 2048, "2 GiB": 2048, "2048K": 2,
		"1048576": 1, "1.5G": 1536, "0M": 0, "Device 0 default pinned memory limit: 8 GiB": 8192,
	} {
		got, ok := parseMemory(answer)
		assert.True(t, ok, answer)
		assert.InDelta(t, want, got.value, 0.001, answer)
	}
	for _, answer := range []string{"", "none", "G", "3X", "Unrecognized command"} {
		_, ok := parseMemory(answer)
		assert.False(t, ok, answer)
	}
}

// A daemon cuts its answer off at a unit.
func TestReadBack(t *testing.T) {
	for _, tt := range []struct {
		answer string
		set    float64
		is     bool
	}{
		{"3G", 3072, true}, {"3G", 4000, true}, {"3G", 4095, true}, {"1G", 2000, true}, {"2000M", 2000, true},
		{"3G", 4096, false}, {"3G", 2048, false}, {"0G", 500, false}, {"0M", 1, false}, {"1999M", 2000, false},
	} {
		got, ok := parseMemory(tt.answer)
		assert.True(t, ok, tt.answer)
		assert.Equal(t, tt.is, got.is(tt.set), "%s where %g MiB were set", tt.answer, tt.set)
	}
	half, _ := parsePercentage("49.0")
	assert.False(t, half.is(50))
}

func TestParsePercentage(t *testing.T) {
	for answer, want := range map[string]float64{"25.0": 25, "50": 50, "25.0%\n": 25, "default: 30.5": 30.5} {
		got, ok := parsePercentage(answer)
		assert.True(t, ok, answer)
		assert.InDelta(t, want, got.value, 0.001, answer)
	}
	for _, answer := range []string{"", "none"} {
		_, ok := parsePercentage(answer)
		assert.False(t, ok, answer)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("3G")
	f.Add("25.0%")
	f.Fuzz(func(t *testing.T, answer string) {
		if mib, ok := parseMemory(answer); ok {
			assert.GreaterOrEqual(t, mib.value, 0.0)
		}
		_, _ = parsePercentage(answer)
	})
}

func TestParseLaunch(t *testing.T) {
	for _, l := range []launch{
		{dir: "/run/tranche/mps/gpu", hostRoot: "/host", driverRoot: "/run/nvidia/driver", options: []string{"-f", "-multiuser-server"}},
		{dir: "/run/tranche/mps/gpu", hostRoot: "/", driverRoot: "/", ask: true, options: []string{}},
	} {
		got, err := parseLaunch(l.arguments())
		require.NoError(t, err)
		assert.Equal(t, l, got)
	}
	for _, args := range [][]string{nil, {"--dir=here"}, {"--what"}} {
		_, err := parseLaunch(args)
		assert.Error(t, err, args)
	}
}
