package xcp

import (
	"fmt"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// division is a mode that a GPU offers, and into how many partitions it then
// divides.
type division struct {
	mode Mode
	n    int
}

// layout is what keeps the devices of a GPU apart: its memory, and a lock for
// each partition of each mode in which there are several. What there is does not follow
// the memory mode, so that its change updates one slice of the GPU and not
// two.
//
// A GPU is in one mode at a time. A partition takes its own lock whole, and of
// the locks of every coarser mode the part that it is of the GPU. All
// partitions of a mode together fill such a lock exactly, and any of them leaves
// too little of it for the partition whose lock it is. So devices fit together
// exactly if they are of one mode and no piece is there twice.
//
// Nothing is finer than the finest mode, so its locks are of one part. They are
// needed all the same: shares of a partition take what the partition takes.
type layout struct {
	xccs   int
	memory int64
	// divisions are finest first, and of different numbers of partitions.
	divisions []division
	// locks are those that have locks: the divisions, and those that the GPU offers
	// under other memory modes. Nobody takes of the locks of these.
	locks []division
}

// lockCounter is "c3" for the lock of the partition cpx-3: the devices of a node
// with eight GPUs name locks some six hundred times.
func lockCounter(m Mode, index int) string { return fmt.Sprintf("%s%d", m.Profile()[:1], index) }

// lock is how many parts each lock of a division has.
func (l layout) lock(d division) int64 {
	if d == l.locks[0] {
		return 1
	}
	return int64(l.xccs)
}

// counters is what the GPU has to give.
func (l layout) counters() gpu.Counters {
	counters := gpu.Counters{names.CounterMemory: l.memory}
	for _, d := range l.locks {
		if d.mode == SPX {
			continue // the whole GPU takes all memory and needs no lock
		}
		for index := range d.n {
			counters[lockCounter(d.mode, index)] = l.lock(d)
		}
	}
	return counters
}

// consumption is what one partition takes of it. Memory counts evenly, so that
// all partitions of a mode fit, whatever each of them shows.
func (l layout) consumption(p division, index int) gpu.Counters {
	takes := gpu.Counters{
		names.CounterMemory:        l.memory / int64(p.n),
		lockCounter(p.mode, index): l.lock(p),
	}
	for _, d := range l.divisions {
		if d.mode == SPX || d.n >= p.n {
			continue
		}
		for coarser := range d.n {
			takes[lockCounter(d.mode, coarser)] = int64(l.xccs / p.n)
		}
	}
	return takes
}

// whole is what the whole GPU takes. All partitions take memory, so all of it
// is everything; to name the locks too would say the same at greater length, in
// every node's slices and on every scheduling attempt. Of a GPU that does not
// tell its memory it is the locks that count.
func (l layout) whole() gpu.Counters {
	all := l.counters()
	if l.memory >= int64(l.locks[0].n) {
		return gpu.Counters{names.CounterMemory: all[names.CounterMemory]}
	}
	return all
}
