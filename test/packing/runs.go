package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dev/tranche/pkg/terminal"
	"github.com/tranche-dev/tranche/test/allocator"
)

// scenario is what replays with different seeds have in common.
type scenario struct {
	workload, policy string
	load             float64
}

// replayAll replays each workload at each load with each policy and seed.
func replayAll(ctx context.Context, s settings, loads []workload, chosen []policy) (map[scenario][]result, error) {
	published, err := publishedLayout(ctx, chart, false)
	if err != nil {
		return nil, err
	}
	ascending, err := publishedLayout(ctx, chart, true)
	if err != nil {
		return nil, err
	}
	progress, done, total := terminal.NewProgress(os.Stderr), 0, len(loads)*len(chosen)*len(s.loads)*s.seeds
	defer progress.Done()
	results := map[scenario][]result{}
	var lock sync.Mutex // protects results and done
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, w := range loads {
		for _, load := range s.loads {
			for _, p := range chosen {
				l := published
				if p.ascending {
					l = ascending
				}
				id := scenario{w.name, p.name, load}
				results[id] = make([]result, s.seeds)
				for seed := range s.seeds {
					group.Go(func() error {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						found := s.replayOne(l, w, p, load, uint64(seed)) //nolint:gosec // it is not negative
						lock.Lock()
						defer lock.Unlock()
						results[id][seed] = found
						done++
						progress.Say("%s %d of %d replays", bar(done, total), done, total)
						return nil
					})
				}
			}
		}
	}
	return results, group.Wait()
}

// bar draws how much of a total is done.
func bar(done, total int) string {
	const width = 40
	filled := width * done / total
	return strings.Repeat("█", filled) + strings.Repeat("░", width-filled)
}

func (s settings) replayOne(l *layout, w workload, p policy, load float64, seed uint64) result {
	r := replay{on: newBound(s.nodes)}
	if p.placer != nil {
		on := &placed{fleet: newFleet(l, s.nodes, seed), placer: p.placer(w), popularity: w.popularity()}
		r.on = on
		if p.moves {
			r.moves = &moves{on: on}
		}
	}
	return r.run(w.arrivals(s.gpus(), load, s.claims, seed))
}

// publishedLayout is the layout of an H100 as the plugin publishes it, or with the devices of each
// profile by ascending starts. chart has the device classes.
func publishedLayout(ctx context.Context, chart string, ascending bool) (*layout, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return nil, fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	gpus, err := h100s(ctx, "")
	if err != nil {
		return nil, err
	}
	if ascending {
		ascend(gpus)
	}
	return newLayout(ctx, gpus[0], classes)
}
