// Package options reads and checks the flags of the commands that replay workloads.
package options

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse parses the flags of a command that takes no other arguments.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are accepted", flags.Arg(0))
	}
	return nil
}

// Number defines a flag for a number that is not below least.
func Number(flags *flag.FlagSet, to *int, name string, value, least int, usage string) {
	*to = value
	flags.Var(&number{to: to, least: least}, name, usage)
}

type number struct {
	to    *int
	least int
}

func (n *number) String() string {
	if n.to == nil { // package flag compares the default with that of a zero number
		return ""
	}
	return strconv.Itoa(*n.to)
}

func (n *number) Set(text string) error {
	value, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return strconv.ErrRange
	case err != nil:
		return errors.New("must be an integer")
	case value < n.least:
		return fmt.Errorf("must be at least %d", n.least)
	}
	*n.to = value
	return nil
}

// Loads are demands as shares of the fleet. As a flag, they are separated by commas.
type Loads []float64

// String is the value of the flag.
func (l *Loads) String() string {
	var texts []string
	for _, load := range *l {
		texts = append(texts, strconv.FormatFloat(load, 'f', 2, 64))
	}
	return strings.Join(texts, ",")
}

// Set replaces all of them.
func (l *Loads) Set(text string) error {
	var loads Loads
	for part := range strings.SplitSeq(text, ",") {
		load, err := strconv.ParseFloat(part, 64)
		if err != nil || !(load > 0) || math.IsInf(load, 1) {
			return fmt.Errorf("%q must be a number above 0; 0.95 is 95 %% of the fleet", part)
		}
		loads = append(loads, load)
	}
	*l = loads
	return nil
}

// Chosen are those of all whose names are in a flag, or all if it is empty.
func Chosen[T any](name, text string, all []T, nameOf func(T) string) (some []T, err error) {
	if text == "" {
		return all, nil
	}
	for wanted := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(all, func(one T) bool { return nameOf(one) == wanted })
		if i < 0 {
			var names []string
			for _, one := range all {
				names = append(names, nameOf(one))
			}
			return nil, fmt.Errorf("%s: there is no %q; there are %s", name, wanted, strings.Join(names, ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}
