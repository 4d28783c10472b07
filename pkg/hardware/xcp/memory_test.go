package xcp

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repeat is the same number n times.
func repeat(n int, mib int64) []int64 { return slices.Repeat([]int64{mib}, n) }

// TestMemoryOf has the numbers of real machines, and those that follow from the
// rule. Sources of the former: see chips.
func TestMemoryOf(t *testing.T) {
	for _, test := range []struct {
		chip   string
		memory MemoryMode
		mode   Mode
		want   []int64 // MiB
		seen   bool    // on a real machine
	}{
		{"MI300X", NPS1, SPX, repeat(1, 196592), true},
		{"MI300X", NPS1, DPX, repeat(2, 98296), true}, // ROCm/k8s-gpu-dra-driver issue 20
		{"MI300X", NPS1, QPX, repeat(4, 49148), false},
		{"MI300X", NPS1, CPX, repeat(8, 24574), false},
		{"MI300X", NPS2, DPX, []int64{98304, 98288}, false},
		{"MI300X", NPS4, QPX, []int64{49152, 49152, 49152, 49136}, false},
		{"MI300X", NPS4, CPX, append(repeat(6, 24576), 24568, 24568), false},
		{"MI308X", NPS1, CPX, repeat(4, 49148), false},
		{"MI308X", NPS4, CPX, []int64{49152, 49152, 49152, 49136}, true},
		{"MI325X", NPS1, SPX, repeat(1, 262128), false},
		{"MI325X", NPS1, DPX, repeat(2, 131064), false},
		{"MI325X", NPS1, QPX, repeat(4, 65532), false},
		{"MI325X", NPS1, CPX, repeat(8, 32766), false},
		{"MI325X", NPS2, DPX, []int64{131072, 131056}, false},
		{"MI325X", NPS4, QPX, []int64{65536, 65536, 65536, 65520}, false},
		{"MI325X", NPS4, CPX, append(repeat(6, 32768), 32760, 32760), false},
		{"MI350X", NPS1, SPX, repeat(1, 294896), true},
		{"MI350X", NPS1, DPX, repeat(2, 147448), false},
		{"MI350X", NPS1, QPX, repeat(4, 73724), false},
		{"MI350X", NPS1, CPX, repeat(8, 36862), false},
		{"MI350X", NPS4, QPX, []int64{73728, 73728, 73728, 73712}, false},
		{"MI350X", NPS4, CPX, append(repeat(6, 36864), 36856, 36856), false},
		{"MI355X", NPS2, DPX, []int64{147456, 147440}, false},
		{"MI355X", NPS2, QPX, []int64{73728, 73728, 73720, 73720}, false},
		{"MI355X", NPS2, CPX, append(repeat(4, 36864), repeat(4, 36860)...), false},
	} {
		c := chipOf(test.chip)
		require.Contains(t, Legal(c.Chip, test.memory), test.mode)
		got := MemoryOf(c.memory<<20, test.memory, test.mode.Count(c.XCCs))
		for i := range got {
			require.Zero(t, got[i]%(1<<20))
			got[i] >>= 20
		}
		assert.Equal(t, test.want, got, "%s in %s under %s (of a real machine: %t)", test.chip, test.mode, test.memory, test.seen)
	}
}

func TestMemoryOfOddGPUs(t *testing.T) {
	const gib = 1 << 30
	for _, test := range []struct {
		name   string
		total  int64
		memory MemoryMode
		n      int
		want   []int64
	}{
		{"nothing known", 0, NPS1, 4, []int64{0, 0, 0, 0}},
		{"no partitions", gib, NPS1, 0, nil},
		{"fewer than none", gib, NPS1, -1, nil},
		{"an unknown memory mode counts as one region", gib, "NPS3", 2, []int64{gib / 2, gib / 2}},
		{"no memory mode", gib, "", 1, []int64{gib}},
		{"a part of a GPU, with nothing missing", 48*gib - page, NPS4, 4, []int64{12*gib - page, 12*gib - page, 12*gib - page, 12*gib - page}},
		{"not whole pages", 3*page + 1, NPS1, 2, []int64{page, page}},
		{"partitions of two regions", 192*gib - reserved, NPS4, 2, []int64{96 * gib, 96*gib - reserved}},
		{"an odd number of GiB", 95*gib - reserved, NPS2, 2, []int64{95 * gib / 2, 95*gib/2 - reserved}},
		{"the whole of four regions", 192*gib - reserved, NPS4, 1, []int64{192*gib - reserved}},
		{"partitions of four regions", 192*gib - reserved, NPS8, 2, []int64{96 * gib, 96*gib - reserved}},
		{"three partitions of four regions", 12 * gib, NPS4, 3, []int64{4 * gib, 4 * gib, 4 * gib}},
	} {
		assert.Equal(t, test.want, MemoryOf(test.total, test.memory, test.n), test.name)
	}
}

// FuzzMemoryOf: whatever a driver says, the partitions are never more than the
// GPU has, and hardly less.
func FuzzMemoryOf(f *testing.F) {
	f.Add(int64(196592<<20), uint8(4), uint8(8))
	f.Add(int64(1<<40), uint8(1), uint8(6))
	f.Add(int64(12345), uint8(8), uint8(3))
	f.Fuzz(func(t *testing.T, total int64, memory, n uint8) {
		mode := append(slices.Clone(memoryModes), "", "NPS16")[int(memory)%6]
		if total < 0 || total > 1<<50 || n > 64 {
			t.Skip()
		}
		shares := MemoryOf(total, mode, int(n))
		require.Len(t, shares, int(n))
		sum := int64(0)
		for _, share := range shares {
			require.GreaterOrEqual(t, share, int64(0))
			sum += share
		}
		require.LessOrEqual(t, sum, total)
		if n > 0 {
			require.Less(t, total-sum, int64(16+int(n))*page, "only parts of pages are lost")
		}
	})
}
