package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// Case is what replays with different seeds have in common.
type Case struct {
	Workload, Policy string
	Load             float64
}

// Results are all replays of a run.
type Results struct {
	// Nodes is the size of the fleet, Claims how many arrived in each replay.
	Nodes, Claims int
	// Workloads, Loads and Policies are in the order in which they are printed.
	Workloads, Policies []string
	Loads               []float64
	// Of has a result for each seed.
	Of map[Case][]replay.Result
	// Real means that kube-scheduler placed the claims.
	Real bool
}

func (r *Results) gpus() float64 { return float64(r.Nodes * workload.GPUsPerNode) }

// column is what a table says of a policy.
type column struct {
	name   string
	value  func(replay.Result) float64
	format string
}

// columns are those of the first table of a workload. The values are averages over the seeds.
func (r *Results) columns() []column {
	all := []column{
		{"demand that waits", waiting, "%.1f %%"},
		{"claims that do not start at once", func(r replay.Result) float64 { return share(r.Delayed, r.Arrived) }, "%.2f %%"},
		{"wait over an hour", func(r replay.Result) float64 { return share(r.Late, r.Early) }, "%.2f %%"},
		{"large claims started", func(r replay.Result) float64 { return share(r.Accepted, r.Large) }, "%.2f %%"},
		{"large claims started at once", func(r replay.Result) float64 { return share(r.Prompt, r.Large) }, "%.2f %%"},
		{"memory allocated", func(one replay.Result) float64 { return percent(one.Average.Held, r.gpus()) }, "%.1f %%"},
		{"GPUs in use", func(r replay.Result) float64 { return r.Average.Used }, "%.0f"},
		{"nodes in use", func(r replay.Result) float64 { return r.Average.UsedNodes }, "%.0f"},
		{"fragmentation", r.fragmentation, "%.1f %%"},
	}
	if r.Real {
		return append(all,
			column{"scheduler CPU per pod", func(r replay.Result) float64 { return 1000 * r.Scheduler.CPU }, "%.0f ms"},
			column{"API writes per claim", func(r replay.Result) float64 { return r.Scheduler.Writes }, "%.1f"},
			column{"slice writes per claim", func(r replay.Result) float64 { return r.Scheduler.SliceWrites }, "%.2f"})
	}
	return append(all,
		column{"pods moved", func(r replay.Result) float64 { return 100 * r.Moved }, "%.2f %%"},
		column{"changes of used GPUs per claim", func(r replay.Result) float64 { return float64(r.Changes) / float64(r.Arrived) }, "%.2f"})
}

// byKind are the columns of the second table: the demand that waits, by kind.
func byKind() (all []column) {
	for i, k := range workload.Kinds {
		all = append(all, column{k.String(), func(r replay.Result) float64 {
			return percent(r.Average.Waiting[i], demand(r))
		}, "%.2f %%"})
	}
	return all
}

// demand is what is held and what waits, in GPUs.
func demand(r replay.Result) float64 { return r.Average.Held + r.Average.Waiting.Sum() }

func waiting(r replay.Result) float64 { return percent(r.Average.Waiting.Sum(), demand(r)) }

func share(part, of int) float64 { return percent(float64(part), float64(of)) }

func percent(part, of float64) float64 {
	if of == 0 {
		return 0
	}
	return 100 * part / of
}

// Write writes the tables of all workloads.
func (r *Results) Write(out io.Writer) {
	for _, w := range r.Workloads {
		fmt.Fprintf(out, "\n### %s, %d nodes, %d claims\n\n", w, r.Nodes, r.Claims)
		r.writeTable(out, r.columns(), w)
		fmt.Fprint(out, "\nDemand that waits, by what is asked for:\n\n")
		r.writeTable(out, byKind(), w)
	}
}

func (r *Results) writeTable(out io.Writer, columns []column, name string) {
	fmt.Fprint(out, "| load | policy |")
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.name)
	}
	fmt.Fprintln(out, "\n|---|---|"+strings.Repeat("---|", len(columns)))
	for _, load := range r.Loads {
		for _, p := range r.Policies {
			of := Case{name, p, load}
			if len(r.Of[of]) == 0 {
				continue
			}
			fmt.Fprintf(out, "| %.2f | %s |", load, p)
			for _, c := range columns {
				fmt.Fprintf(out, " "+c.format+" |", r.mean(of, c.value))
			}
			fmt.Fprintln(out)
		}
	}
}

// drawn are the policies of which there are results of a workload at a load, with the results of each.
func (r *Results) drawn(name string, load float64) (policies []string, all [][]replay.Result) {
	policies = slices.DeleteFunc(slices.Clone(r.Policies), func(p string) bool { return len(r.Of[Case{name, p, load}]) == 0 })
	for _, p := range policies {
		all = append(all, r.Of[Case{name, p, load}])
	}
	return policies, all
}
