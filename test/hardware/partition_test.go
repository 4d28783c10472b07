package hardware

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

var (
	partition = flag.String("partition", "", "PCI address of an idle GPU to turn MIG mode on for, partition, and restore; empty: no GPU is changed")
	changes   = flag.Int("changes", 1000, "how many partitions -partition creates or destroys")
	seed      = flag.Uint64("seed", 1, "choice of these partitions")
)

// TestPartition changes the GPU that -partition names, as Tranche does for claims.
func TestPartition(t *testing.T) {
	if *partition == "" {
		t.Skip("-partition names no GPU")
	}
	address, err := gpu.NormalizePCIAddress(*partition)
	require.NoError(t, err)
	partitionIt(t, realMachine(t), address, *changes)
}

// partitionIt checks one GPU with a number of changes, and leaves it as it was.
func partitionIt(t *testing.T, m *machine, address string, changes int) {
	before := stateOf(t, m)
	n := slices.IndexFunc(gpusOf(t, m), func(g gpu.GPU) bool { return g.PCIAddress == address })
	require.GreaterOrEqual(t, n, 0, "there is no GPU %s", address)
	g := gpusOf(t, m)[n]
	t.Run("changes", func(t *testing.T) {
		p := &partitioned{t: t, machine: m, gpu: g, random: rand.New(rand.NewPCG(*seed, 0))} //nolint:gosec // repeatable
		p.requireIdle()
		t.Cleanup(p.restore(before[g.Name()].Modes.MIG))
		p.watched("turn MIG mode on", func() error { return p.driver.SetMIG(m.ctx(t), address, true, false) })
		p.gpu = gpusOf(t, m)[n] // what it offers may differ with MIG mode on
		p.cycle(changes)
		p.destroyAfterUse()
	})
	assert.Equal(t, before, stateOf(t, m), "the GPUs are not as they were: see nvidia-smi, and the messages above")
}

// partitioned is a GPU whose partitions are created and destroyed.
type partitioned struct {
	*machine
	t      *testing.T
	gpu    gpu.GPU
	random *rand.Rand
	// made are the partitions that there are.
	made []gpu.Placement
}

func (p *partitioned) requireIdle() {
	p.t.Helper()
	require.True(p.t, slices.ContainsFunc(p.gpu.Placements, isMIG), "%s offers no MIG partitions; before Hopper, turn MIG mode on and reset the GPU first", p.gpu.Name())
	live, err := p.Live(p.ctx(p.t), p.gpu.PCIAddress)
	require.NoError(p.t, err)
	require.Empty(p.t, live, "the GPU has partitions: destroy them first")
	obstacles, err := p.driver.Obstacles(p.ctx(p.t), p.gpu.PCIAddress, false)
	require.NoError(p.t, err)
	require.Empty(p.t, obstacles, "the GPU is in use")
}

func isMIG(p gpu.Placement) bool { return p.Type == gpu.TypeMIG }

// restore destroys what there is, and sets MIG mode as it was. It works also if the checks were
// interrupted by a failure.
func (p *partitioned) restore(mode gpu.MIGMode) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), patience)
		defer cancel()
		live, err := p.Live(ctx, p.gpu.PCIAddress)
		assert.NoError(p.t, err)
		for _, one := range live {
			if placement, ok := p.gpu.Placement(one.Name()); assert.True(p.t, ok, one.Name()) {
				assert.NoError(p.t, p.driver.Destroy(ctx, placement))
			}
		}
		if mode != gpu.MIGOn {
			assert.NoError(p.t, p.driver.SetMIG(ctx, p.gpu.PCIAddress, false, false))
		}
	}
}

// watched does something while others read what they can of the GPU, as monitoring does.
func (p *partitioned) watched(what string, change func() error) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.ctx(p.t))
	var wait sync.WaitGroup
	var reads int
	wait.Go(func() {
		for ; ctx.Err() == nil; reads++ {
			_, _ = p.driver.Usage(ctx, p.gpu.PCIAddress)
			_ = p.driver.CheckHealth(ctx, p.gpu.PCIAddress)
			_, _ = p.Live(ctx, p.gpu.PCIAddress)
		}
	})
	start := time.Now()
	err := change()
	took := time.Since(start)
	cancel()
	wait.Wait()
	require.NoError(p.t, err, what)
	p.t.Logf("%s: %s, while the GPU was read %d times", what, took.Round(time.Millisecond), reads)
}

// cycle creates and destroys partitions at random. A partition can be created exactly when the
// counters say that it fits beside those that there are.
func (p *partitioned) cycle(changes int) {
	placements := slices.DeleteFunc(slices.Clone(p.gpu.Placements), func(one gpu.Placement) bool { return !isMIG(one) })
	var created, destroyed []time.Duration
	for refused := 0; len(created)+len(destroyed) < changes; {
		one := placements[p.random.IntN(len(placements))]
		start := time.Now()
		if n := slices.IndexFunc(p.made, func(there gpu.Placement) bool { return there.Name() == one.Name() }); n >= 0 {
			require.NoError(p.t, p.driver.Destroy(p.ctx(p.t), one), one.Name())
			destroyed, p.made = append(destroyed, time.Since(start)), slices.Delete(p.made, n, n+1)
		} else {
			counted := maps.Clone(one.Consumes)
			for _, there := range p.made {
				counted.Add(there.Consumes)
			}
			_, err := p.driver.Create(p.ctx(p.t), one)
			over := counted.Exceeds(p.gpu.Counters)
			require.Equal(p.t, over == "", err == nil, "%s beside %s: the counters say %q, the driver %v", one.Name(), namesOf(p.made), over, err)
			if err != nil {
				refused++
				p.giveWay(&destroyed, refused)
				continue
			}
			created, p.made = append(created, time.Since(start)), append(p.made, one)
		}
		p.requireMade()
	}
	p.t.Logf("created %s, destroyed %s", summary(created), summary(destroyed))
}

// giveWay destroys a partition of a GPU that is full: otherwise most choices would be refused.
func (p *partitioned) giveWay(destroyed *[]time.Duration, refused int) {
	if refused%5 != 0 || len(p.made) == 0 {
		return
	}
	n := p.random.IntN(len(p.made))
	start := time.Now()
	require.NoError(p.t, p.driver.Destroy(p.ctx(p.t), p.made[n]))
	*destroyed, p.made = append(*destroyed, time.Since(start)), slices.Delete(p.made, n, n+1)
}

// requireMade: the driver lists exactly what was created.
func (p *partitioned) requireMade() {
	live, err := p.Live(p.ctx(p.t), p.gpu.PCIAddress)
	require.NoError(p.t, err)
	var there []string
	for _, one := range live {
		there = append(there, one.Name())
	}
	require.ElementsMatch(p.t, namesOf(p.made), there)
}

func namesOf(placements []gpu.Placement) (all []string) {
	for _, p := range placements {
		all = append(all, p.Name())
	}
	return all
}

func summary(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	slices.Sort(took)
	return fmt.Sprintf("%d partitions in %s each (median), %s at most", len(took), took[len(took)/2], took[len(took)-1])
}

// destroyAfterUse: a partition can be destroyed when the last program in it has ended.
func (p *partitioned) destroyAfterUse() {
	if p.cuda == "" {
		p.t.Log("not tried: destroying a partition after use (no libcuda.so.1 beside NVML's library)")
		return
	}
	one := p.gpu.Placements[slices.IndexFunc(p.gpu.Placements, isMIG)]
	if len(p.made) > 0 {
		one = p.made[0]
	}
	live, err := p.driver.Create(p.ctx(p.t), one)
	require.NoError(p.t, err)
	_, end := startClient(p.t, p.machine, order{Most: chunk}, "CUDA_VISIBLE_DEVICES="+live.UUID)
	inUse := p.driver.Destroy(p.ctx(p.t), one)
	if p.simulated {
		p.t.Log("the simulated driver does not see the program")
		end()
		return
	}
	require.ErrorIs(p.t, inUse, gpu.ErrInUse, "a program uses the partition")
	end()
	start, ctx := time.Now(), p.ctx(p.t)
	for err = p.driver.Destroy(ctx, one); errors.Is(err, gpu.ErrInUse) && ctx.Err() == nil; err = p.driver.Destroy(ctx, one) {
		time.Sleep(10 * time.Millisecond)
	}
	require.NoError(p.t, err)
	p.t.Logf("a partition could be destroyed %s after its last program had ended", time.Since(start).Round(time.Millisecond))
}
