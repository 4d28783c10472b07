package mps

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMemory(t *testing.T) {
	for answer, want := range map[string]float64{
		"3G": 3072, "1408M": 1408, "1408M\n": 1408, "2GB": 2048, "2 GiB": 2048, "2048K": 2,
		"1048576": 1, "1.5G": 1536, "0M": 0, "Device 0 default pinned memory limit: 8 GiB": 8192,
	} {
		assert.InDelta(t, want, parseMemory(answer).value, 0.001, answer)
	}
	for _, answer := range []string{"", "none", "G", "3X", "Unrecognized command"} {
		assert.Zero(t, parseMemory(answer), answer)
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
		assert.Equal(t, tt.is, parseMemory(tt.answer).is(tt.set), "%s where %g MiB were set", tt.answer, tt.set)
	}
	assert.False(t, parsePercentage("49.0").is(50))
	assert.True(t, parsePercentage("50.4").is(50))
	assert.False(t, parseMemory(strings.Repeat("9", 400)+"G").is(1))
}

func TestParsePercentage(t *testing.T) {
	for answer, want := range map[string]float64{"25.0": 25, "50": 50, "25.0%\n": 25, "default: 30.5": 30.5} {
		assert.InDelta(t, want, parsePercentage(answer).value, 0.001, answer)
	}
	for _, answer := range []string{"", "none"} {
		assert.Zero(t, parsePercentage(answer).value, answer)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("3G")
	f.Add("25.0%")
	f.Fuzz(func(t *testing.T, answer string) {
		assert.GreaterOrEqual(t, parseMemory(answer).value, 0.0)
		_ = parsePercentage(answer)
	})
}

func TestParseLaunch(t *testing.T) {
	for _, l := range []launch{
		{dir: "/run/tranche/mps/gpu", hostRoot: "/host", driverRoot: "/run/nvidia/driver", options: []string{"-f", "-multiuser-server"}},
		{dir: "/run/tranche/mps/gpu", hostRoot: "/", driverRoot: "/", ask: true, options: []string{}},
		{dir: "/run/tranche/mps/gpu", unmount: true, shmSize: 2 << 30, options: []string{}},
		{program: "nvidia-smi", options: []string{"--gpu-reset", "-i", "0000:1b:00.0"}},
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
