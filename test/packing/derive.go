package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
)

// longest is the longest lifetime in the table, in seconds: a week. Of the 6203
// pods with GPUs that were scheduled, 38 live longer. They would take 84 % of the GPU time and
// decide every result alone.
const longest = 7 * 24 * 3600

// shape is a row of a workload: claims that are alike.
type shape struct {
	kind int
	// cpu is in thousandths of a CPU, memory in MiB.
	cpu, memory int64
	// life is the mean lifetime in seconds.
	life float64
	// weight is how often the shape occurs.
	weight float64
}

// derive makes the table of testdata/trace.csv from the pod list of Alibaba's trace. Pods that
// are alike and whose lifetimes have the same number of bits are one row with their mean
// lifetime. Pods without GPUs and pods that were never scheduled are left out.
func derive(in io.Reader) ([]shape, error) {
	records, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, errors.New("the pod list is empty")
	}
	column := map[string]int{}
	for i, name := range records[0] {
		column[name] = i
	}
	type class struct {
		kind, bits  int
		cpu, memory int64
	}
	rows := map[class]shape{}
	for line, record := range records[1:] {
		field := map[string]int64{}
		for _, name := range []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "deletion_time"} {
			if field[name], err = strconv.ParseInt(record[column[name]], 10, 64); err != nil {
				return nil, fmt.Errorf("pod %d: %s: %w", line+1, name, err)
			}
		}
		scheduled, err := strconv.ParseInt(record[column["scheduled_time"]], 10, 64)
		if err != nil || field["num_gpu"] == 0 {
			continue
		}
		k, err := kindOf(int(field["gpu_milli"]), int(field["num_gpu"]))
		if err != nil {
			return nil, fmt.Errorf("pod %d: %w", line+1, err)
		}
		life := min(max(field["deletion_time"]-scheduled, 1), longest)
		c := class{k, bits.Len64(uint64(life)), field["cpu_milli"], field["memory_mib"]} //nolint:gosec // it is positive
		row := rows[c]
		row.kind, row.cpu, row.memory = c.kind, c.cpu, c.memory
		row.life += float64(life)
		row.weight++
		rows[c] = row
	}
	all := slices.Collect(maps.Values(rows))
	for i := range all {
		all[i].life = float64(int(all[i].life / all[i].weight))
	}
	slices.SortFunc(all, func(a, b shape) int {
		return cmp.Or(a.kind-b.kind, cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.memory, b.memory), cmp.Compare(a.life, b.life))
	})
	return all, nil
}

// header is the first line of a table.
var header = []string{"kind", "cpu_milli", "memory_mib", "lifetime_seconds", "pods"}

func writeTable(out io.Writer, shapes []shape) error {
	w := csv.NewWriter(out)
	rows := [][]string{header}
	for _, s := range shapes {
		rows = append(rows, []string{
			kinds[s.kind].String(), fmt.Sprint(s.cpu), fmt.Sprint(s.memory), fmt.Sprint(int(s.life)), fmt.Sprint(int(s.weight)),
		})
	}
	return w.WriteAll(rows)
}

func readTable(in io.Reader) ([]shape, error) {
	records, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 || !slices.Equal(records[0], header) {
		return nil, fmt.Errorf("the first line must be %v", header)
	}
	var all []shape
	for line, r := range records[1:] {
		k, err := kindByName(r[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line+2, err)
		}
		var numbers [4]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(r[i+1], 10, 64); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", line+2, header[i+1], err)
			}
		}
		all = append(all, shape{k, numbers[0], numbers[1], float64(numbers[2]), float64(numbers[3])})
	}
	return all, nil
}
