package xcp

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseModes(t *testing.T) {
	for text, want := range map[string][]Mode{
		"SPX, DPX, QPX, CPX\n": {SPX, DPX, QPX, CPX}, // available_compute_partition of MI300X under NPS1
		"SPX, TPX, CPX\n":      {SPX, TPX, CPX},
		"CPX\n":                {CPX}, // current_compute_partition
		"QPX,CPX":              {QPX, CPX},
		"cpx":                  {CPX},
		"CPX, CPX":             {CPX},
		"UNKNOWN\n":            nil,
		"SPX, OPX, CPX\n":      {SPX, CPX}, // a mode of the future
		"SPXX, CP, X":          nil,
		"":                     nil,
		" ,, \n":               nil,
	} {
		assert.Equal(t, want, ParseModes(text), "%q", text)
	}
}

func TestParseMemoryModes(t *testing.T) {
	for text, want := range map[string][]MemoryMode{
		"NPS1, NPS4\n":       {NPS1, NPS4}, // available_memory_partition
		"NPS1, NPS2, NPS8\n": {NPS1, NPS2, NPS8},
		"NPS4\n":             {NPS4}, // current_memory_partition
		"Not supported\n":    nil,    // supported_nps_configs
		"NPS3, NPS16":        nil,
		"":                   nil,
	} {
		assert.Equal(t, want, ParseMemoryModes(text), "%q", text)
	}
}

func FuzzParseModes(f *testing.F) {
	for _, seed := range []string{"SPX, DPX, QPX, CPX\n", "UNKNOWN", "NPS1, NPS4", "Not supported", "cpx\x00", ",,\xff", "ſpx"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkWords(t, text, ParseModes(text), modes)
		checkWords(t, text, ParseMemoryModes(text), memoryModes)
		if m, ok := ModeOf(text); ok {
			require.Equal(t, text, m.Profile())
		}
		for _, xccs := range []int{-8, 0, 8} {
			require.Zero(t, Mode(text+"?").Count(xccs))
		}
		require.Zero(t, MemoryMode(text+"?").Regions())
	})
}

// checkWords: only known words come out, each once and each from the text, and
// what came out reads as itself.
func checkWords[T ~string](t *testing.T, text string, got, all []T) {
	t.Helper()
	words := make([]string, len(got))
	for i, word := range got {
		require.Contains(t, all, word)
		require.NotContains(t, got[:i], word)
		require.Contains(t, strings.ToUpper(text), string(word))
		words[i] = string(word)
	}
	require.Equal(t, got, known(strings.Join(words, ", "), all))
}

func TestProfiles(t *testing.T) {
	assert.Equal(t, "cpx", CPX.Profile())
	for _, m := range modes {
		got, ok := ModeOf(m.Profile())
		assert.True(t, ok)
		assert.Equal(t, m, got)
	}
	for _, profile := range []string{"", "CPX", "1g.10gb", "cpx "} {
		m, ok := ModeOf(profile)
		assert.False(t, ok, profile)
		assert.Empty(t, m)
	}
	assert.Equal(t, []string{"SPX", "CPX"}, Names([]Mode{CPX, SPX, "OPX"}), "as drivers list them")
}

func TestCount(t *testing.T) {
	for _, test := range []struct {
		xccs                    int
		spx, dpx, tpx, qpx, cpx int
	}{
		{8, 1, 2, 0, 4, 8}, // MI300X: TPX would leave two XCCs over
		{6, 1, 0, 3, 0, 6}, // MI300A
		{4, 1, 2, 0, 0, 4}, // MI308X: QPX would be CPX
		{3, 1, 0, 0, 0, 3}, // TPX would be CPX
		{2, 1, 0, 0, 0, 2}, // DPX would be CPX
		{1, 1, 0, 0, 0, 0}, // a single XCC is SPX
		{0, 0, 0, 0, 0, 0}, // a driver that does not report it
		{-4, 0, 0, 0, 0, 0},
	} {
		got := []int{SPX.Count(test.xccs), DPX.Count(test.xccs), TPX.Count(test.xccs), QPX.Count(test.xccs), CPX.Count(test.xccs)}
		assert.Equal(t, []int{test.spx, test.dpx, test.tpx, test.qpx, test.cpx}, got, "%d XCCs", test.xccs)
	}
	assert.Zero(t, Mode("OPX").Count(8))
}

// The counters need it: modes of a GPU divide it evenly, and no two of them
// into the same number of partitions.
func TestCountsDivideAndDiffer(t *testing.T) {
	for xccs := range 65 {
		counts := map[int]Mode{}
		for _, m := range modes {
			n := m.Count(xccs)
			if n == 0 {
				continue
			}
			require.Zero(t, xccs%n, "%s of %d XCCs", m, xccs)
			require.Empty(t, counts[n], "%s of %d XCCs", m, xccs)
			counts[n] = m
		}
		finest := slices.IndexFunc(modes, func(m Mode) bool { return m.Count(xccs) > 0 })
		for _, m := range modes {
			require.True(t, finest < 0 || m.Count(xccs) <= modes[finest].Count(xccs), "modes are ordered finest first")
		}
	}
}

// TestLegal is the kernel's table, of the rule in aqua_vanjaram.c. None of it
// was read on a real machine but SPX, DPX and CPX of MI300X and SPX of MI350X
// under NPS1, and CPX of MI308X under NPS4.
func TestLegal(t *testing.T) {
	type table map[MemoryMode][]Mode
	eight := table{NPS1: {CPX, QPX, DPX, SPX}, NPS2: {DPX}, NPS4: {CPX, QPX}}
	for name, want := range map[string]table{
		"MI300X": eight,
		"MI325X": eight,
		"MI300A": {NPS1: {CPX, TPX, SPX}},
		"MI308X": {NPS1: {CPX, DPX, SPX}, NPS2: {DPX}, NPS4: {CPX}},
		"MI350X": {NPS1: {CPX, QPX, DPX, SPX}, NPS2: {CPX, QPX, DPX}, NPS4: {CPX, QPX}},
		"MI355X": {NPS1: {CPX, QPX, DPX, SPX}, NPS2: {CPX, QPX, DPX}, NPS4: {CPX, QPX}},
	} {
		for _, memory := range append(slices.Clone(memoryModes), "", "NPS3") {
			assert.Equal(t, want[memory], Legal(chipOf(name).Chip, memory), "%s under %s", name, memory)
		}
	}
}

func TestLegalOfOtherGPUs(t *testing.T) {
	vf := chipOf("MI300X").Chip
	vf.VF = true
	assert.Equal(t, []Mode{CPX, DPX}, Legal(vf, NPS2), "a virtual function")
	narrow := chipOf("MI355X").Chip
	narrow.MemoryModes = []MemoryMode{NPS1, NPS2}
	assert.Empty(t, Legal(narrow, NPS4), "a GPU that cannot be in the memory mode")
	silent := Chip{XCCs: 8, GFX: 90402}
	assert.Equal(t, []Mode{CPX, QPX}, Legal(silent, NPS4), "a GPU that does not list its memory modes")
	assert.Equal(t, []Mode{TPX}, Legal(Chip{XCCs: 6, GFX: 90402}, NPS4), "six XCCs do not go into four regions")
	assert.Equal(t, []Mode{SPX}, Legal(Chip{XCCs: 1}, NPS1))
	assert.Empty(t, Legal(Chip{}, NPS1))
}
