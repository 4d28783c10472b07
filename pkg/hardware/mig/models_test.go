package mig

// The profiles of some models as plain tables, for the pure parts: what NVML
// lists on these GPUs (lgip and lgipp output, and NVML calls for Hopper).

// row is a profile: name, compute slices, size and starts in memory slices,
// SMs, engines as nvidia-smi orders them (copy, decode, encode, JPEG, OFA), and
// how often it fits.
type row struct {
	name    string
	slices  int
	size    int
	starts  []int
	sms     int64
	engines [5]int64
	max     int
}

func table(rows []row) []Profile {
	var all []Profile
	for i, r := range rows {
		p := Profile{ID: uint32(i), Name: r.name, Slices: r.slices, Multiprocessors: r.sms, Max: r.max, Engines: map[string]int64{}}
		for n, engine := range []string{CopyEngines, Decoders, Encoders, JPEGEngines, OFAEngines} {
			if r.engines[n] > 0 {
				p.Engines[engine] = r.engines[n]
			}
		}
		for _, start := range r.starts {
			p.Spans = append(p.Spans, Span{start, r.size})
		}
		all = append(all, p)
	}
	return all
}

var (
	ones = []int{0, 1, 2, 3, 4, 5, 6}
	twos = []int{0, 2, 4, 6}
)

func a30() []Profile {
	return table([]row{
		{"1g.6gb", 1, 1, []int{0, 1, 2, 3}, 14, [5]int64{1, 0, 0, 0, 0}, 4},
		{"1g.6gb+me", 1, 1, []int{0, 1, 2, 3}, 14, [5]int64{1, 1, 0, 1, 1}, 1},
		{"2g.12gb", 2, 2, []int{0, 2}, 28, [5]int64{2, 2, 0, 0, 0}, 2},
		{"2g.12gb+me", 2, 2, []int{0, 2}, 28, [5]int64{2, 2, 0, 1, 1}, 1},
		{"4g.24gb", 4, 4, []int{0}, 56, [5]int64{4, 4, 0, 1, 1}, 1},
	})
}

func a100() []Profile {
	return table([]row{
		{"1g.5gb", 1, 1, ones, 14, [5]int64{1, 0, 0, 0, 0}, 7},
		{"1g.5gb+me", 1, 1, ones, 14, [5]int64{1, 1, 0, 1, 1}, 1},
		{"1g.10gb", 1, 2, twos, 14, [5]int64{1, 1, 0, 0, 0}, 4},
		{"2g.10gb", 2, 2, []int{0, 2, 4}, 28, [5]int64{2, 1, 0, 0, 0}, 3},
		{"3g.20gb", 3, 4, []int{0, 4}, 42, [5]int64{3, 2, 0, 0, 0}, 2},
		{"4g.20gb", 4, 4, []int{0}, 56, [5]int64{4, 2, 0, 0, 0}, 1},
		{"7g.40gb", 7, 8, []int{0}, 98, [5]int64{7, 5, 0, 1, 1}, 1},
	})
}

func h100() []Profile {
	return table([]row{
		{"1g.10gb", 1, 1, ones, 16, [5]int64{1, 1, 0, 1, 0}, 7},
		{"1g.10gb+me", 1, 1, ones, 16, [5]int64{1, 1, 0, 1, 1}, 1},
		{"1g.20gb", 1, 2, twos, 26, [5]int64{1, 1, 0, 1, 0}, 4},
		{"2g.20gb", 2, 2, []int{0, 2, 4}, 32, [5]int64{2, 2, 0, 2, 0}, 3},
		{"3g.40gb", 3, 4, []int{0, 4}, 60, [5]int64{3, 3, 0, 3, 0}, 2},
		{"4g.40gb", 4, 4, []int{0}, 64, [5]int64{4, 4, 0, 4, 0}, 1},
		{"7g.80gb", 7, 8, []int{0}, 132, [5]int64{8, 7, 0, 7, 1}, 1},
	})
}

func rtxPro6000() []Profile {
	threes, sixes := []int{0, 3, 6, 9}, []int{0, 6}
	return table([]row{
		{"1g.24gb", 1, 3, threes, 46, [5]int64{1, 1, 1, 1, 0}, 4},
		{"1g.24gb+me", 1, 3, threes, 46, [5]int64{1, 1, 1, 1, 1}, 1},
		{"1g.24gb+gfx", 1, 3, threes, 46, [5]int64{1, 1, 1, 1, 0}, 4},
		{"1g.24gb+me.all", 1, 3, threes, 46, [5]int64{1, 4, 4, 4, 1}, 1},
		{"1g.24gb-me", 1, 3, threes, 46, [5]int64{1, 0, 0, 0, 0}, 4},
		{"2g.48gb", 2, 6, sixes, 94, [5]int64{2, 2, 2, 2, 0}, 2},
		{"2g.48gb+gfx", 2, 6, sixes, 94, [5]int64{2, 2, 2, 2, 0}, 2},
		{"2g.48gb+me.all", 2, 6, sixes, 94, [5]int64{2, 4, 4, 4, 1}, 1},
		{"2g.48gb-me", 2, 6, sixes, 94, [5]int64{2, 0, 0, 0, 0}, 2},
		{"4g.96gb", 4, 12, []int{0}, 188, [5]int64{4, 4, 4, 4, 1}, 1},
		{"4g.96gb+gfx", 4, 12, []int{0}, 188, [5]int64{4, 4, 4, 4, 1}, 1},
	})
}
