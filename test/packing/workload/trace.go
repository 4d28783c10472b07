package workload

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

// Shape is a row of a workload: claims that are alike, with the requests of their pods.
type Shape struct {
	// Kind is an index of Kinds.
	Kind int
	// CPU is in thousandths of a CPU, Memory in MiB.
	CPU, Memory int64
	// Life is the lifetime in seconds.
	Life float64
	// Weight is how often the shape occurs.
	Weight float64
}

// Derive makes the table of testdata/trace.csv from the pod list of Alibaba's trace. Pods that
// are alike and whose lifetimes have the same number of bits are one row with their mean
// lifetime. Pods without GPUs and pods that were never scheduled are left out.
func Derive(in io.Reader, out io.Writer) error {
	shapes, err := derive(in)
	if err != nil {
		return err
	}
	return writeTable(out, shapes)
}

func derive(in io.Reader) ([]Shape, error) {
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
	rows := map[class]Shape{}
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
		row.Kind, row.CPU, row.Memory = c.kind, c.cpu, c.memory
		row.Life += float64(life)
		row.Weight++
		rows[c] = row
	}
	all := slices.Collect(maps.Values(rows))
	for i := range all {
		all[i].Life = float64(int(all[i].Life / all[i].Weight))
	}
	slices.SortFunc(all, func(a, b Shape) int {
		return cmp.Or(a.Kind-b.Kind, cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Life, b.Life))
	})
	return all, nil
}

// header is the first line of a table.
var header = []string{"kind", "cpu_milli", "memory_mib", "lifetime_seconds", "pods"}

func writeTable(out io.Writer, shapes []Shape) error {
	w := csv.NewWriter(out)
	rows := [][]string{header}
	for _, s := range shapes {
		rows = append(rows, []string{
			Kinds[s.Kind].String(), fmt.Sprint(s.CPU), fmt.Sprint(s.Memory), fmt.Sprint(int(s.Life)), fmt.Sprint(int(s.Weight)),
		})
	}
	return w.WriteAll(rows)
}

func readTable(in io.Reader) ([]Shape, error) {
	records, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 || !slices.Equal(records[0], header) {
		return nil, fmt.Errorf("the first line must be %v", header)
	}
	var all []Shape
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
		all = append(all, Shape{k, numbers[0], numbers[1], float64(numbers[2]), float64(numbers[3])})
	}
	return all, nil
}
