package cluster

import (
	"fmt"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	resourceapi "k8s.io/api/resource/v1"
)

// conditionParser parses selectors, without their types.
var conditionParser = func() *celgo.Env {
	env, err := celgo.NewEnv(celgo.OptionalTypes())
	if err != nil {
		panic(err) // It has no input.
	}
	return env
}()

// driverConditions returns the conditions in selectors that depend on device.driver and on nothing else of a
// device. All of them must be true for a device to be selected. A selector that cannot be parsed has none.
func driverConditions(selectors []resourceapi.DeviceSelector) (out []resourceapi.DeviceSelector) {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		parsed, issues := conditionParser.Parse(s.CEL.Expression)
		if issues.Err() != nil {
			continue
		}
		for _, condition := range conjuncts(parsed.NativeRep().Expr()) {
			if !onlyDriver(condition) {
				continue
			}
			text, err := parser.Unparse(condition, parsed.NativeRep().SourceInfo())
			if err != nil {
				continue
			}
			out = append(out, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: text}})
		}
	}
	return out
}

// NamesIn returns the names of fields and keys in a selector, such as those of attributes.
func NamesIn(selector string) (out []string) {
	parsed, issues := conditionParser.Parse(selector)
	if issues.Err() != nil {
		return nil
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			out = append(out, e.AsSelect().FieldName())
		case ast.CallKind:
			if f := e.AsCall().FunctionName(); f != operators.Index && f != operators.OptIndex && f != operators.OptSelect {
				return
			}
			if key := e.AsCall().Args()[1]; key.Kind() == ast.LiteralKind {
				out = append(out, fmt.Sprint(key.AsLiteral().Value()))
			}
		}
	}))
	return out
}

// conjuncts returns the parts of a && b && c.
func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		var out []ast.Expr
		for _, part := range e.AsCall().Args() {
			out = append(out, conjuncts(part)...)
		}
		return out
	}
	return []ast.Expr{e}
}

// onlyDriver reports whether an expression reads device.driver and nothing else of the device.
func onlyDriver(e ast.Expr) bool {
	driver, device := 0, 0
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.IdentKind && e.AsIdent() == "device":
			device++
		case e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == "driver" &&
			e.AsSelect().Operand().Kind() == ast.IdentKind && e.AsSelect().Operand().AsIdent() == "device":
			driver++
		}
	}))
	return driver > 0 && driver == device
}
