package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/tranche-dev/tranche/api/names"
)

// comparison translates a comparison whose values differ between the drivers. It returns false for
// others.
func (t *translator) comparison(e ast.Expr) bool {
	c := e.AsCall()
	if c.IsMemberFunction() || len(c.Args()) != 2 {
		return false
	}
	left, right := c.Args()[0], c.Args()[1]
	switch c.FunctionName() {
	case operators.GreaterEquals, operators.Less:
		return t.version(e, left, right, c.FunctionName() == operators.Less)
	case operators.Equals, operators.NotEquals:
		if t.attributeIn(left) == "" {
			left, right = right, left
		}
	case operators.In:
	default:
		return false
	}
	return t.equality(left, right)
}

// equality translates the values that an attribute is compared with. It reports whether it has translated
// the whole comparison.
func (t *translator) equality(left, right ast.Expr) bool {
	switch t.attributeIn(left) {
	case names.AttributeArchitecture:
		t.architecture(left, right)
		return true
	case names.AttributeType:
		for _, value := range values(right) {
			if text, _ := literal(value); text == "vfio" {
				t.refuse("type vfio: Tranche does not pass GPUs to virtual machines; leave those nodes to NVIDIA's driver")
			}
		}
	case names.AttributeProfile:
		for _, value := range values(right) {
			if text, _ := literal(value); computeInstance.MatchString(text) {
				t.refuse("profile %s is a compute instance, a part of a partition, which Tranche does not create: write %s", text, computeInstance.FindStringSubmatch(text)[1])
			}
		}
	}
	return false
}

var computeInstance = regexp.MustCompile(`^[0-9]+c\.([0-9]+g\.[0-9]+gb.*)$`)

// attributeIn returns the attribute of NVIDIA's driver whose value an expression has, possibly in lower
// case or with a default, or "".
func (t *translator) attributeIn(e ast.Expr) string {
	for e.Kind() == ast.CallKind && e.AsCall().IsMemberFunction() && slices.Contains([]string{"lowerAscii", "orValue"}, e.AsCall().FunctionName()) {
		e = e.AsCall().Target()
	}
	if r := t.reading(e); r != nil && !r.capacity {
		return r.name
	}
	return ""
}

// values returns the elements of a list, or the only value.
func values(e ast.Expr) []ast.Expr {
	if e.Kind() == ast.ListKind {
		return e.AsList().Elements()
	}
	return []ast.Expr{e}
}

// architecture translates a comparison of the architecture with strings.
func (t *translator) architecture(left, right ast.Expr) {
	for _, value := range values(right) {
		text, is := literal(value)
		i := slices.IndexFunc(architectures, func(a struct{ theirs, ours, first string }) bool { return strings.EqualFold(a.theirs, text) })
		if !is || i < 0 {
			t.refuse("architecture is compared with a value that NVIDIA's driver never publishes: compare it with %s", theirNames())
			return
		}
		value.SetKindCase(t.text(architectures[i].ours))
	}
	for left.Kind() == ast.CallKind && left.AsCall().IsMemberFunction() {
		for _, value := range left.AsCall().Args() {
			t.visit(value)
		}
		left = left.AsCall().Target()
	}
	t.rename(left, t.reading(left), names.AttributeArchitecture)
}

func theirNames() string {
	var names []string
	for _, a := range architectures {
		names = append(names, a.theirs)
	}
	return strings.Join(names, ", ")
}

var semver = regexp.MustCompile(`^([0-9]{1,9})\.[0-9]+\.0$`)

// version translates VERSION.compareTo(semver("…")) >= 0, or < 0, if a number or a list of
// architectures means the same.
func (t *translator) version(e, left, right ast.Expr, less bool) bool {
	if right.Kind() != ast.LiteralKind || right.AsLiteral() != types.Int(0) || left.Kind() != ast.CallKind {
		return false
	}
	compare := left.AsCall()
	if !compare.IsMemberFunction() || compare.FunctionName() != "compareTo" || len(compare.Args()) != 1 {
		return false
	}
	bound := compare.Args()[0]
	r := t.reading(compare.Target())
	if r == nil || r.capacity || r.optional || bound.Kind() != ast.CallKind || bound.AsCall().FunctionName() != "semver" || len(bound.AsCall().Args()) != 1 {
		return false
	}
	text, _ := literal(bound.AsCall().Args()[0])
	number := semver.FindStringSubmatch(text)
	if number == nil {
		return false
	}
	target := compare.Target()
	switch r.name {
	case driverVersion:
		if !strings.HasSuffix(text, ".0.0") {
			return false
		}
		major, _ := strconv.Atoi(number[1])
		t.rename(target, r, driverVersion)
		first := t.make.NewCall(0, operators.Index, t.make.NewMemberCall(0, "split", target, t.text(".")), t.make.NewLiteral(0, types.Int(0)))
		e.SetKindCase(t.make.NewCall(e.ID(), e.AsCall().FunctionName(), t.make.NewCall(0, "int", first), t.make.NewLiteral(0, types.Int(major))))
		return true
	case computeCapability:
		older, found := t.olderThan(text)
		if !found {
			return false
		}
		t.rename(target, r, names.AttributeArchitecture)
		in := t.make.NewCall(e.ID(), operators.In, target, t.make.NewList(0, older, nil))
		if !less {
			in = t.make.NewCall(e.ID(), operators.LogicalNot, in)
		}
		e.SetKindCase(in)
		return true
	}
	return false
}

// olderThan returns the architectures before the one whose first compute capability is given.
func (t *translator) olderThan(capability string) (older []ast.Expr, found bool) {
	for _, a := range architectures {
		if a.first == capability {
			return older, true
		}
		older = append(older, t.text(a.ours))
	}
	return nil, false
}
