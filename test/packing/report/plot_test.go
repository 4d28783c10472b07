package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/replay"
)

func TestPlots(t *testing.T) {
	one := replay.Result{
		Average: replay.Sample{Held: 6, Waiting: replay.Demand{0: 0.5, 3: 0.5, eightGPUs: 1}},
		Series:  []replay.Sample{{Held: 0}, {Time: 10 * replay.Hour, Held: 8}},
	}
	more := replay.Result{Average: replay.Sample{Held: 2, Waiting: replay.Demand{0: 1, eightGPUs: 1}}}
	folder := filepath.Join(t.TempDir(), "plots")
	results := Results{Nodes: 1, Workloads: []string{"mix"}, Loads: []float64{0.8, 0.9}, Policies: []string{"default", "other"},
		Of: map[Case][]replay.Result{{"mix", "default", 0.8}: {one, more}}}
	require.NoError(t, results.Plots(folder))

	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		for d := xml.NewDecoder(strings.NewReader(string(content))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
		return string(content)
	}
	assert.Contains(t, read("mix-0.80-allocated.svg"), `d="M150.0 290.0L620.0 40.0"`, "from nothing to all")
	waiting := read("mix-0.80-waiting.svg")
	assert.Contains(t, waiting, ">37.5 %<", "the mean of 25 and 50 %")
	assert.Contains(t, waiting, `x="150.0" y="77.5" width="235.0"`, "half of it are partitions")
	assert.Contains(t, waiting, `x="385.0" y="77.5" width="235.0"`, "half of it are 8 GPUs")
}

func TestStep(t *testing.T) {
	for most, want := range map[float64]float64{1: 0.2, 10: 2, 26.5: 5, 100: 20, 310: 100} {
		assert.InDelta(t, want, step(most), 1e-9, most)
	}
}
