package controlplane

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCPUTime(t *testing.T) {
	const numbers = " S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 20"
	for name, tt := range map[string]struct {
		stat string
		want time.Duration
		fail bool
	}{
		"plain":                  {stat: "12 (tranche)" + numbers, want: 3 * time.Second},
		"spaces and parentheses": {stat: "12 (a) b (c)" + numbers, want: 3 * time.Second},
		"cut short":              {stat: "12 (tranche) S 1 2", fail: true},
		"no name":                {stat: "12" + numbers, fail: true},
		"empty":                  {fail: true},
		"no number":              {stat: strings.Replace("12 (tranche)"+numbers, "250", "x", 1), fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cpuTime(tt.stat)
			require.Equal(t, tt.fail, err != nil, "%v", err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func FuzzCPUTime(f *testing.F) {
	f.Add("12 (tranche) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 20")
	f.Add(")")
	f.Fuzz(func(_ *testing.T, stat string) { _, _ = cpuTime(stat) })
}

func TestPeakMemory(t *testing.T) {
	got, err := peakMemory("Name:\ttranche\nVmPeak:\t  99 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
	require.NoError(t, err)
	assert.EqualValues(t, 2048*1024, got)
	for _, bad := range []string{"", "VmHWM:", "VmHWM:\t x kB\n", "VmRSS:\t1 kB\n"} {
		_, err := peakMemory(bad)
		require.Error(t, err, bad)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, u.Peak, int64(1e6))
	_, err = usageOf(1 << 30)
	require.Error(t, err)
}

func TestBusiest(t *testing.T) {
	start := time.Now()
	readings := func(cpu ...int) []Usage { // one a second, in tenths of a second
		var all []Usage
		for i, c := range cpu {
			all = append(all, Usage{At: start.Add(time.Duration(i) * time.Second), CPU: time.Duration(c) * 100 * time.Millisecond})
		}
		return all
	}
	for name, tt := range map[string]struct {
		cpu  []int
		want float64
	}{
		"nothing":            {nil, 0},
		"less than a window": {[]int{0, 10}, 0},
		"even":               {[]int{0, 5, 10, 15, 20}, 0.5},
		"a burst":            {[]int{0, 0, 0, 20, 40, 40, 40}, 2},
		"at the end":         {[]int{0, 0, 0, 0, 10, 30}, 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, tt.want, Busiest(readings(tt.cpu...), 2*time.Second), 1e-9)
		})
	}
}
