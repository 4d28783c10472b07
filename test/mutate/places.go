package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// place is a part of a file and what breaks it.
type place struct {
	pkg, file string
	line      int
	// kind says what is broken.
	kind string
	// source is the file, in which the bytes from start to end are replaced.
	source      []byte
	start, end  int
	replacement string
	// switched breaks the place while the program runs. Empty: that cannot be.
	switched []insertion
	// number is that of its switch, from 1, or 0.
	number int
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.file, q.file), cmp.Compare(p.start, q.start), cmp.Compare(p.kind, q.kind))
}

// broken returns the file with the place broken.
func (p place) broken() []byte {
	return slices.Concat(p.source[:p.start], []byte(p.replacement), p.source[p.end:])
}

// diff returns the line that changes, before and after.
func (p place) diff() string {
	first := bytes.LastIndexByte(p.source[:p.start], '\n') + 1
	line := func(file []byte) string {
		text, _, _ := bytes.Cut(file[first:], []byte("\n"))
		return strings.TrimSpace(string(text))
	}
	return fmt.Sprintf("  - %s\n  + %s\n", line(p.source), line(p.broken()))
}

// Go's compiler accepts all of them: what is left out stays behind `false`, so that variables and
// imports stay used.
var (
	turned  = map[token.Token]string{token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.GEQ: "<", token.GTR: "<=", token.LEQ: ">"}
	swapped = map[token.Token]string{token.LAND: "||", token.LOR: "&&"}
)

// finder finds the places of a file that can be broken.
type finder struct {
	place
	set *token.FileSet
	// typeOf returns the type of a number; empty: a switch cannot have it.
	typeOf func(*ast.BasicLit) string
	// within are the nodes around the one that is looked at, and itself.
	within []ast.Node
	found  []place
}

// find returns the places of a file that can be broken.
func find(pkg string, set *token.FileSet, tree *ast.File, source []byte, typeOf func(*ast.BasicLit) string) []place {
	if ast.IsGenerated(tree) {
		return nil
	}
	f := finder{place: place{pkg: pkg, file: set.Position(tree.Pos()).Filename, source: source}, set: set, typeOf: typeOf}
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			f.within = f.within[:len(f.within)-1]
			return true
		}
		if s, ok := n.(*ast.ExprStmt); ok && logs(s.X) {
			return false
		}
		f.within = append(f.within, n)
		f.node(n)
		return true
	})
	return f.found
}

func (f *finder) offset(at token.Pos) int { return f.set.Position(at).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) add(kind string, from, to token.Pos, replacement string, switched ...insertion) {
	p := f.place
	p.kind, p.line, p.replacement = kind, f.set.Position(from).Line, replacement
	p.start, p.end, p.switched = f.offset(from), f.offset(to), switched
	f.found = append(f.found, p)
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
		for _, condition := range n.List {
			if failed(condition) {
				f.never("an error swallowed", condition)
			}
		}
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.IfStmt:
		if failed(n.Cond) {
			f.never("an error swallowed", n.Cond)
		} else if n.Else == nil && leaves(n.Body) {
			f.never("a guard left out", n.Cond)
		}
	case *ast.BinaryExpr:
		length := token.Pos(len(n.Op.String()))
		if other := turned[n.Op]; other != "" && !failed(n) {
			f.add("a comparison turned round", n.OpPos, n.OpPos+length, other, f.around(n, "mutateTurn($, ", ")")...)
		}
		if other := swapped[n.Op]; other != "" {
			f.add("&& and || swapped", n.OpPos, n.OpPos+length, other, f.swap(n)...)
		}
	case *ast.BasicLit:
		if number, err := strconv.ParseInt(n.Value, 0, 64); err == nil && n.Kind == token.INT {
			var switched []insertion
			if name := f.typeOf(n); name != "" && !f.constant() {
				switched = f.around(n, "mutateNumber["+name+"]($, ", ")")
			}
			f.add("a number one higher", n.Pos(), n.End(), higher(n.Value, number), switched...)
		}
	}
}

// never adds a condition that is left out.
func (f *finder) never(kind string, condition ast.Expr) {
	f.add(kind, condition.Pos(), condition.End(), "false && ("+f.text(condition)+")", f.around(condition, "(mutateKeep($) && (", "))")...)
}

// statements adds those that can be left out.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		kind := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && !logs(call) && f.text(call.Fun) != "panic" {
				kind = "a call left out"
			}
		case *ast.GoStmt:
			kind = "a call left out"
		case *ast.DeferStmt:
			if f.text(s.Call) == "cancel()" {
				continue // Without it, cancel is not used, and that does not compile.
			}
			kind = "a defer left out"
		case *ast.IncDecStmt:
			kind = "an assignment left out"
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				kind = "an assignment left out"
			}
			if strings.Trim(f.text(s)[:s.TokPos-s.Pos()], "_, ") == "" {
				if _, called := s.Rhs[0].(*ast.CallExpr); !called {
					continue
				}
				kind = "a call left out"
			}
		}
		if kind != "" {
			f.add(kind, s.Pos(), s.End(), "if false { "+f.text(s)+" }", f.around(s, "if mutateKeep($) { ", " }")...)
		}
	}
}

// constant reports whether the node is where only constants may be, or may be one.
func (f *finder) constant() bool {
	for i, n := range f.within {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok != token.VAR {
				return true
			}
		case *ast.ArrayType:
			return true
		case *ast.KeyValueExpr:
			if i+1 < len(f.within) && f.within[i+1] == n.Key {
				return true
			}
		}
	}
	return false
}

// failed reports whether a condition begins with err != nil.
func failed(condition ast.Expr) bool {
	b, ok := condition.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	if b.Op == token.LAND {
		return failed(b.X)
	}
	err, isName := b.X.(*ast.Ident)
	none, isNone := b.Y.(*ast.Ident)
	return b.Op == token.NEQ && isName && isNone && none.Name == "nil" && strings.HasSuffix(strings.ToLower(err.Name), "err")
}

// leaves reports whether a block ends with return, break or continue.
func leaves(block *ast.BlockStmt) bool {
	if len(block.List) == 0 {
		return false
	}
	switch block.List[len(block.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// logs reports whether an expression writes to the log, which no test has to notice.
func logs(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		return logs(e.Fun)
	case *ast.SelectorExpr:
		return e.Sel.Name == "Logger" || logs(e.X)
	case *ast.Ident:
		return e.Name == "log" || e.Name == "logger" || e.Name == "klog"
	}
	return false
}

// higher returns the number after one, written as that one is.
func higher(literal string, number int64) string {
	switch lower := strings.ToLower(literal); {
	case strings.HasPrefix(lower, "0x"):
		return fmt.Sprintf("%#x", number+1)
	case len(lower) > 1 && lower[0] == '0':
		return fmt.Sprintf("%O", number+1)
	}
	return strconv.FormatInt(number+1, 10)
}
