package main

import (
	"fmt"
	"io"
	"strings"
)

// column is what a table says of a policy.
type column struct {
	name   string
	value  func(r result, s settings) float64
	format string
}

// columns are those of the first table of a workload. The values are averages over the seeds.
var columns = []column{
	{"demand that waits", func(r result, _ settings) float64 {
		return percent(r.average.waiting, r.average.held+r.average.waiting)
	}, "%.1f %%"},
	{"claims that do not start at once", func(r result, _ settings) float64 { return percent(float64(r.delayed), float64(r.arrived)) }, "%.2f %%"},
	{"wait over an hour", func(r result, _ settings) float64 { return percent(float64(r.late), float64(r.early)) }, "%.2f %%"},
	{"large claims started", func(r result, _ settings) float64 { return percent(float64(r.accepted), float64(r.large)) }, "%.2f %%"},
	{"large claims started at once", func(r result, _ settings) float64 { return percent(float64(r.prompt), float64(r.large)) }, "%.2f %%"},
	{"pods moved", func(r result, _ settings) float64 { return 100 * r.moved }, "%.2f %%"},
	{"memory allocated", func(r result, s settings) float64 { return percent(r.average.held, s.gpus()) }, "%.1f %%"},
	{"GPUs in use", func(r result, _ settings) float64 { return r.average.used }, "%.0f"},
	{"nodes in use", func(r result, _ settings) float64 { return r.average.usedNodes }, "%.0f"},
	{"fragmentation", func(r result, s settings) float64 { return percent(r.average.pinched, s.gpus()) }, "%.1f %%"},
	{"changes of used GPUs per claim", func(r result, _ settings) float64 { return float64(r.changes) / float64(r.arrived) }, "%.2f"},
}

func (s settings) gpus() float64 { return float64(s.nodes * gpusPerNode) }

func percent(part, of float64) float64 {
	if of == 0 {
		return 0
	}
	return 100 * part / of
}

// byKind are the columns of the second table: the demand that waits, by kind.
func byKind() (all []column) {
	for i, k := range kinds {
		all = append(all, column{k.String(), func(r result, _ settings) float64 {
			return percent(r.waiting[i], r.average.held+r.average.waiting)
		}, "%.2f %%"})
	}
	return all
}

// writeReport writes the tables of a workload, in Markdown.
func writeReport(out io.Writer, s settings, w workload, chosen []policy, results map[scenario][]result) {
	fmt.Fprintf(out, "\n### %s, %d nodes, %d claims, %d seeds\n\n", w.name, s.nodes, s.claims, s.seeds)
	writeTableOf(out, columns, s, w, chosen, results)
	fmt.Fprint(out, "\nDemand that waits, by what is asked for:\n\n")
	writeTableOf(out, byKind(), s, w, chosen, results)
}

func writeTableOf(out io.Writer, columns []column, s settings, w workload, chosen []policy, results map[scenario][]result) {
	fmt.Fprint(out, "| load | policy |")
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.name)
	}
	fmt.Fprintln(out, "\n|---|---|"+strings.Repeat("---|", len(columns)))
	for _, load := range s.loads {
		for _, p := range chosen {
			fmt.Fprintf(out, "| %.2f | %s |", load, p.name)
			found := results[scenario{w.name, p.name, load}]
			for _, c := range columns {
				sum := 0.0
				for _, r := range found {
					sum += c.value(r, s)
				}
				fmt.Fprintf(out, " "+c.format+" |", sum/float64(len(found)))
			}
			fmt.Fprintln(out)
		}
	}
}
