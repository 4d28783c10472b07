// Package symbols knows which functions NVML's library has in each branch of the driver.
package symbols

import (
	"debug/elf"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed symbols.txt
var table string

// since has the oldest branch with a function.
var since = sync.OnceValue(func() map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var branch int
		var name string
		if _, err := fmt.Sscan(line, &branch, &name); err != nil {
			panic(fmt.Sprintf("symbols.txt: %q: %v", line, err))
		}
		all[name] = branch
	}
	return all
})

// Branches returns the branches of the driver, oldest first.
func Branches() []int {
	return slices.Compact(slices.Sorted(maps.Values(since())))
}

// Of returns the functions of a branch's library, in order. Between two branches, the older one's.
func Of(branch int) []string {
	var names []string
	for name, first := range since() {
		if first <= branch {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// In returns the functions of a library file, in order.
func In(file string) ([]string, error) {
	library, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer library.Close()
	all, err := library.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Branch returns the newest branch that is not newer than a driver's version, such as 580.159.04.
func Branch(driverVersion string) (int, error) {
	text, _, _ := strings.Cut(driverVersion, ".")
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not the version of a driver", driverVersion)
	}
	all := Branches()
	older := slices.IndexFunc(all, func(branch int) bool { return branch > number })
	switch older {
	case -1:
		return all[len(all)-1], nil
	case 0:
		return 0, fmt.Errorf("driver %s is older than the simulated libraries, which begin with %d", driverVersion, all[0])
	}
	return all[older-1], nil
}
