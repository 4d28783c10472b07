package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
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

// find returns the places of a file that can be broken.
func find(pkg, file string, source []byte) (all []place, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	add := func(kind string, from, to token.Pos, replacement string) {
		at := set.Position(from)
		all = append(all, place{pkg: pkg, file: file, line: at.Line, kind: kind, source: source,
			start: at.Offset, end: set.Position(to).Offset, replacement: replacement})
	}
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	unless := func(kind string, condition ast.Expr) {
		add(kind, condition.Pos(), condition.End(), "false && ("+text(condition)+")")
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ExprStmt:
			return !logs(n.X)
		case *ast.BlockStmt:
			statements(n.List, text, add)
		case *ast.CaseClause:
			statements(n.Body, text, add)
			for _, condition := range n.List {
				if failed(condition) {
					unless("an error swallowed", condition)
				}
			}
		case *ast.CommClause:
			statements(n.Body, text, add)
		case *ast.IfStmt:
			if failed(n.Cond) {
				unless("an error swallowed", n.Cond)
			} else if n.Else == nil && leaves(n.Body) {
				unless("a guard left out", n.Cond)
			}
		case *ast.BinaryExpr:
			length := token.Pos(len(n.Op.String()))
			if other := turned[n.Op]; other != "" && !failed(n) {
				add("a comparison turned round", n.OpPos, n.OpPos+length, other)
			}
			if other := swapped[n.Op]; other != "" {
				add("&& and || swapped", n.OpPos, n.OpPos+length, other)
			}
		case *ast.BasicLit:
			if number, err := strconv.ParseInt(n.Value, 0, 64); err == nil && n.Kind == token.INT {
				add("a number one higher", n.Pos(), n.End(), higher(n.Value, number))
			}
		}
		return true
	})
	return all, nil
}

// statements adds those that can be left out.
func statements(list []ast.Stmt, text func(ast.Node) string, add func(kind string, from, to token.Pos, replacement string)) {
	for _, s := range list {
		kind := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && !logs(call) && text(call.Fun) != "panic" {
				kind = "a call left out"
			}
		case *ast.GoStmt:
			kind = "a call left out"
		case *ast.DeferStmt:
			if text(s.Call) == "cancel()" {
				continue // Without it, cancel is not used, and that does not compile.
			}
			kind = "a defer left out"
		case *ast.IncDecStmt:
			kind = "an assignment left out"
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				kind = "an assignment left out"
			}
			if strings.Trim(text(s)[:s.TokPos-s.Pos()], "_, ") == "" {
				if _, called := s.Rhs[0].(*ast.CallExpr); !called {
					continue
				}
				kind = "a call left out"
			}
		}
		if kind != "" {
			add(kind, s.Pos(), s.End(), "if false { "+text(s)+" }")
		}
	}
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
