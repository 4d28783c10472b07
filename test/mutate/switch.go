package main

import (
	"cmp"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// insertion is text that a file gets at an offset; $ in it is the number of its place.
type insertion struct {
	at int
	// drop is the number of bytes that go there.
	drop int
	text string
	// depth is how deep in the tree of the file its node is.
	depth int
	// order is the order of insertions at one offset: what ends there, what is between, what begins.
	order int
}

const (
	ends = iota
	between
	begins
)

// around puts text before and after a node.
func (f *finder) around(n ast.Node, before, after string) []insertion {
	depth := len(f.within)
	return []insertion{
		{at: f.offset(n.Pos()), text: before, depth: depth, order: begins},
		{at: f.offset(n.End()), text: after, depth: depth, order: ends},
	}
}

// swap makes a call of && or ||, whose second operand is a function.
func (f *finder) swap(n *ast.BinaryExpr) []insertion {
	name := map[string]string{"&&": "mutateAnd", "||": "mutateOr"}[n.Op.String()]
	operator := insertion{at: f.offset(n.OpPos), drop: 2, text: ", func() bool { return (", order: between}
	return append(f.around(n, name+"($, ", ") })"), operator)
}

// withSwitches returns a file in which the places can be broken while the program runs.
func withSwitches(source []byte, places []place) []byte {
	var all []insertion
	for _, p := range places {
		for _, s := range p.switched {
			s.text = strings.ReplaceAll(s.text, "$", strconv.Itoa(p.number))
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b insertion) int {
		deeper := cmp.Compare(a.depth, b.depth)
		if a.order == ends {
			deeper = -deeper
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order), deeper)
	})
	var out []byte
	done := 0
	for _, s := range all {
		out = append(append(out, source[done:s.at]...), s.text...)
		done = s.at + s.drop
	}
	return append(out, source[done:]...)
}

// The environment of a program with switches.
const (
	// breakVariable has the number of the place that is broken.
	breakVariable = "TRANCHE_MUTATE_BREAK"
	// metVariable names a file that gets the number of each place that is met.
	metVariable = "TRANCHE_MUTATE_MET"
)

// switches is a file that each package with switches has.
const switches = `
import (
	"os"
	"strconv"
	"sync"
)

var (
	mutateBroken, _ = strconv.Atoi(os.Getenv("` + breakVariable + `"))
	mutateFile      = func() *os.File {
		f, _ := os.OpenFile(os.Getenv("` + metVariable + `"), os.O_APPEND|os.O_WRONLY, 0)
		return f
	}()
	mutateMet sync.Map
)

func mutateIs(place int) bool {
	if mutateFile != nil {
		if _, met := mutateMet.LoadOrStore(place, true); !met {
			_, _ = mutateFile.WriteString(strconv.Itoa(place) + "\n")
		}
	}
	return place == mutateBroken
}

func mutateKeep(place int) bool { return !mutateIs(place) }

func mutateTurn(place int, is bool) bool { return is != mutateIs(place) }

func mutateAnd(place int, a bool, b func() bool) bool {
	if mutateIs(place) {
		return a || b()
	}
	return a && b()
}

func mutateOr(place int, a bool, b func() bool) bool {
	if mutateIs(place) {
		return a && b()
	}
	return a || b()
}

func mutateNumber[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64](place int, number T) T {
	if mutateIs(place) {
		return number + 1
	}
	return number
}
`
