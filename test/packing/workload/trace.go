package workload

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
)

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

// header is the first line of a table.
var header = []string{"kind", "cpu_milli", "memory_mib", "lifetime_seconds", "pods"}

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
