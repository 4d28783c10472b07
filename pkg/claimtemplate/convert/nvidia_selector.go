package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// deepest is the maximum nesting of expressions, which are visited recursively.
const deepest = 100

// translateSelector translates a CEL selector for devices of NVIDIA's driver to one for Tranche's. It
// returns a selector that does not mention NVIDIA's driver unchanged. The error lists what has no
// counterpart, with the remedies.
func translateSelector(expression string, on devices) (string, error) {
	if !strings.Contains(expression, nvidiaDriver) {
		return expression, nil
	}
	// Without macros, has() and exists() stay calls and are printed unchanged.
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true),
		parser.MaxRecursionDepth(deepest), parser.ExpressionSizeCodePointLimit(resourceapi.CELSelectorExpressionMaxLength))
	if err != nil {
		return "", err
	}
	parsed, problems := p.Parse(common.NewTextSource(expression))
	if found := problems.GetErrors(); len(found) > 0 {
		return "", fmt.Errorf("is not valid CEL: %s", found[0].Message)
	}
	t := &translator{on: on, make: ast.NewExprFactory()}
	t.visit(parsed.Expr())
	if len(t.problems) > 0 {
		return "", errors.New(strings.Join(t.problems, "; "))
	}
	out, err := parser.Unparse(parsed.Expr(), parsed.SourceInfo())
	if err == nil && len(out) > resourceapi.CELSelectorExpressionMaxLength {
		err = fmt.Errorf("is longer than %d characters after the translation: shorten it", resourceapi.CELSelectorExpressionMaxLength)
	}
	return out, err
}

type translator struct {
	on       devices
	make     ast.ExprFactory
	problems []string
}

func (t *translator) refuse(format string, args ...any) {
	if problem := fmt.Sprintf(format, args...); !slices.Contains(t.problems, problem) {
		t.problems = append(t.problems, problem)
	}
}

// visit translates an expression and its operands.
func (t *translator) visit(e ast.Expr) {
	if r := t.reading(e); r != nil {
		t.read(e, r)
		return
	}
	switch e.Kind() {
	case ast.LiteralKind:
		if text, is := literal(e); is && text == nvidiaDriver {
			e.SetKindCase(t.text(names.DriverName))
		}
	case ast.IdentKind:
		if e.AsIdent() == "device" {
			t.refuse("reads attributes in a way that is not translated: write device.attributes[%q].NAME", nvidiaDriver)
		}
	case ast.SelectKind:
		t.selection(e.AsSelect())
	case ast.CallKind:
		t.comparison(e.AsCall())
		t.children(e.AsCall())
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			t.visit(element)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			t.visit(entry.AsMapEntry().Key())
			t.visit(entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			t.visit(field.AsStructField().Value())
		}
	}
}

// selection translates a field that is not an attribute: device.driver, or a field of a result.
func (t *translator) selection(s ast.SelectExpr) {
	if isDevice(s.Operand()) && s.FieldName() != "attributes" && s.FieldName() != "capacity" {
		return
	}
	t.visit(s.Operand())
}

func (t *translator) children(c ast.CallExpr) {
	switch name := c.FunctionName(); {
	case c.IsMemberFunction():
		t.visit(c.Target())
	case name == operators.Index || name == operators.OptIndex:
		if of := domain(c.Args()[0], c.Args()[1]); of == "" || of == nvidiaDriver {
			break
		}
		return // an attribute of another domain
	case name == operators.In && mapOf(c.Args()[1]) != "":
		t.visit(c.Args()[0]) // tests whether a domain exists
		return
	case name == "has" && len(c.Args()) == 1:
		if r := t.reading(c.Args()[0]); r != nil {
			r.presence = true
			t.read(c.Args()[0], r)
			return
		}
	}
	for _, arg := range c.Args() {
		t.visit(arg)
	}
}

// reading is a read of an attribute or capacity of NVIDIA's driver in an expression.
type reading struct {
	// name is empty if it is not a literal.
	name     string
	capacity bool
	// presence is true if the expression only tests whether it exists, optional if it may be missing.
	presence, optional bool
}

// reading returns how an expression reads an attribute or capacity of NVIDIA's driver, or nil if it does
// not.
func (t *translator) reading(e ast.Expr) *reading {
	switch e.Kind() {
	case ast.SelectKind:
		if of := t.ofDriver(e.AsSelect().Operand()); of != "" {
			return &reading{name: e.AsSelect().FieldName(), capacity: of == "capacity", optional: optionally(e.AsSelect().Operand())}
		}
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() || len(c.Args()) != 2 {
			return nil
		}
		of, name := c.Args()[0], c.Args()[1]
		switch c.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
		case operators.In:
			of, name = name, of
		default:
			return nil
		}
		if in := t.ofDriver(of); in != "" {
			text, _ := literal(name)
			return &reading{name: text, capacity: in == "capacity", presence: c.FunctionName() == operators.In, optional: optionally(e) || optionally(of)}
		}
	}
	return nil
}

// optionally reports whether a call reads an optional field, with ? before its name.
func optionally(e ast.Expr) bool {
	name := e.AsCall().FunctionName()
	return name == operators.OptIndex || name == operators.OptSelect
}

// ofDriver returns "attributes" or "capacity" if an expression is that map of NVIDIA's driver, or "".
func (t *translator) ofDriver(e ast.Expr) string {
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return ""
	}
	c := e.AsCall()
	if name := c.FunctionName(); name != operators.Index && name != operators.OptIndex || domain(c.Args()[0], c.Args()[1]) != nvidiaDriver {
		return ""
	}
	return mapOf(c.Args()[0])
}

// domain returns the domain in device.attributes["…"], or "" for other expressions.
func domain(of, index ast.Expr) string {
	if text, is := literal(index); is && mapOf(of) != "" {
		return text
	}
	return ""
}

// mapOf returns "attributes" or "capacity" for these maps of a device, or "".
func mapOf(e ast.Expr) string {
	if e.Kind() != ast.SelectKind || !isDevice(e.AsSelect().Operand()) {
		return ""
	}
	if name := e.AsSelect().FieldName(); name == "attributes" || name == "capacity" {
		return name
	}
	return ""
}

func isDevice(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "device" }

// read translates a reading of an attribute or capacity.
func (t *translator) read(e ast.Expr, r *reading) {
	name := r.name
	switch {
	case name == "":
		t.refuse("reads attributes whose names are not literals: write device.attributes[%q].NAME", nvidiaDriver)
		return
	case !r.capacity:
		if remedy := missingAttribute(name, t.on); remedy != "" {
			t.refuse("attribute %s: %s", name, remedy)
			return
		}
	case sharedCapacities[name] == "":
		t.refuse("capacity %s: %s", name, capacityRemedy)
		return
	default:
		name = sharedCapacities[name]
	}
	t.rename(e, r, name)
}

// rename makes a reading read a field of Tranche's devices. Reading a missing field is an error that ends
// the scheduling of the pod, so fields that Tranche omits, such as capacities of 0, get a default.
func (t *translator) rename(e ast.Expr, r *reading, name string) {
	kind := "attributes"
	if r.capacity {
		kind = "capacity"
	}
	of := t.make.NewCall(0, operators.Index, t.make.NewSelect(0, t.make.NewIdent(0, "device"), kind), t.text(names.DriverName))
	optional := func() ast.Expr { return t.make.NewCall(0, operators.OptSelect, of, t.text(name)) }
	switch {
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In:
		e.SetKindCase(t.make.NewCall(e.ID(), operators.In, t.text(name), of))
	case r.optional:
		e.SetKindCase(optional())
	case r.capacity && !r.presence:
		e.SetKindCase(t.make.NewMemberCall(e.ID(), "orValue", optional(), t.make.NewCall(0, "quantity", t.text("0"))))
	case name == names.AttributeUUID && t.on == anyDevices && !r.presence:
		e.SetKindCase(t.make.NewMemberCall(e.ID(), "orValue", optional(), t.text("")))
	default:
		e.SetKindCase(t.make.NewSelect(e.ID(), of, name))
	}
}

func (t *translator) text(s string) ast.Expr { return t.make.NewLiteral(0, types.String(s)) }

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, is := e.AsLiteral().(types.String)
	return string(text), is
}
