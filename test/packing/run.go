package main

import (
	"context"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/report"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// replayAll replays each workload at each load with each policy and seed.
func (s settings) replayAll(ctx context.Context, workloads []workload.Workload, policies []policy.Policy) (*report.Results, error) {
	results := &report.Results{Nodes: s.nodes, Claims: s.claims, Loads: s.loads, Of: map[report.Case][]replay.Result{}}
	for _, p := range policies {
		results.Policies = append(results.Policies, p.Name)
	}
	layouts := map[bool]*fleet.Layout{} // by policy.Ascending
	for _, ascending := range []bool{false, true} {
		var err error
		if layouts[ascending], err = fleet.Published(ctx, fleet.Chart, ascending); err != nil {
			return nil, err
		}
	}
	progress := picture.NewProgress(os.Stderr)
	defer progress.Done()
	done, total := 0, len(workloads)*len(policies)*len(s.loads)*s.seeds
	var lock sync.Mutex // protects results and done
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, w := range workloads {
		results.Workloads = append(results.Workloads, w.Name)
		for _, load := range s.loads {
			for _, p := range policies {
				found := make([]replay.Result, s.seeds)
				lock.Lock()
				results.Of[report.Case{Workload: w.Name, Policy: p.Name, Load: load}] = found
				lock.Unlock()
				for seed := range s.seeds {
					group.Go(func() error {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						found[seed] = replay.Run(replay.Settings{
							Workload: w, Policy: p, Layout: layouts[p.Ascending], Nodes: s.nodes, Load: load, Claims: s.claims, Seed: uint64(seed), //nolint:gosec // it is not negative
						})
						lock.Lock()
						defer lock.Unlock()
						done++
						progress.Say("%d of %d replays", done, total)
						return nil
					})
				}
			}
		}
	}
	return results, group.Wait()
}
