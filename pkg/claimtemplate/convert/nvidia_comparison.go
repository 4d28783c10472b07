package convert

import (
	"regexp"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/tranche-dev/tranche/api/names"
)

// comparison refuses a comparison with a value that Tranche never publishes.
func (t *translator) comparison(c ast.CallExpr) {
	if c.IsMemberFunction() || len(c.Args()) != 2 {
		return
	}
	left, right := c.Args()[0], c.Args()[1]
	switch c.FunctionName() {
	case operators.Equals, operators.NotEquals:
		if t.attributeIn(left) == "" {
			left, right = right, left
		}
	case operators.In:
	default:
		return
	}
	attribute := t.attributeIn(left)
	for _, value := range values(right) {
		text, _ := literal(value)
		switch {
		case attribute == names.AttributeType && text == "vfio":
			t.refuse("type vfio: Tranche does not pass GPUs to virtual machines; leave those nodes to NVIDIA's driver")
		case attribute == names.AttributeProfile && computeInstance.MatchString(text):
			t.refuse("profile %s is a compute instance, a part of a partition, which Tranche does not create: write %s", text, computeInstance.FindStringSubmatch(text)[1])
		}
	}
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
