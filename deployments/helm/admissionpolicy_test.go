package helm_test

import (
	"strings"
	"testing"

	gocel "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policy evaluates the chart's admission policy with the CEL library of the
// API server.
type policy struct {
	t    *testing.T
	env  *gocel.Env
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec
}

// policyNamed is the policy whose name ends so.
func policyNamed(t *testing.T, objects []runtime.Object, suffix string) policy {
	t.Helper()
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		if strings.HasSuffix(p.Name, suffix) {
			return policyOf(t, p)
		}
	}
	require.Fail(t, "no policy "+suffix)
	return policy{}
}

func policyOf(t *testing.T, object *admissionregistrationv1.ValidatingAdmissionPolicy) policy {
	t.Helper()
	var options []gocel.EnvOption
	for _, name := range []string{"object", "oldObject", "request", "variables"} {
		options = append(options, gocel.Variable(name, gocel.DynType))
	}
	version := environment.DefaultCompatibilityVersion()
	set, err := environment.MustBaseEnvSet(version).Extend(environment.VersionedOptions{
		IntroducedVersion: version, EnvOptions: options,
	})
	require.NoError(t, err)
	return policy{
		t:    t,
		env:  set.StoredExpressionsEnv(),
		spec: object.Spec,
	}
}

func (p policy) eval(expression string, input map[string]any) any {
	p.t.Helper()
	ast, issues := p.env.Compile(expression)
	require.NoError(p.t, issues.Err(), expression)
	program, err := p.env.Program(ast)
	require.NoError(p.t, err, expression)
	result, _, err := program.Eval(input)
	require.NoError(p.t, err, expression)
	return result.Value()
}

func (p policy) appliesTo(username string) bool {
	p.t.Helper()
	for _, condition := range p.spec.MatchConditions {
		if p.eval(condition.Expression, map[string]any{"request": map[string]any{"userInfo": map[string]any{"username": username}}}) != true {
			return false
		}
	}
	return true
}

// firstRefusal returns the message of the first validation that fails.
func (p policy) firstRefusal(input map[string]any, operation string) string {
	p.t.Helper()
	switch operation {
	case "CREATE":
		input["oldObject"] = types.NullValue
	case "DELETE":
		input["object"] = types.NullValue
	}
	variables := map[string]any{}
	input["variables"] = variables
	for _, variable := range p.spec.Variables {
		variables[variable.Name] = p.eval(variable.Expression, input)
	}
	for _, validation := range p.spec.Validations {
		if p.eval(validation.Expression, input) == true {
			continue
		}
		if validation.MessageExpression != "" {
			return p.eval(validation.MessageExpression, input).(string)
		}
		return validation.Message
	}
	return ""
}

// requireBound: each policy has a binding that denies what it refuses.
func requireBound(t *testing.T, objects []runtime.Object) {
	t.Helper()
	var policies, bound []string
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		policies = append(policies, p.Name)
	}
	for _, b := range all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects) {
		require.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, b.Spec.ValidationActions)
		bound = append(bound, b.Spec.PolicyName)
	}
	require.ElementsMatch(t, policies, bound)
}

func TestAdmissionPolicyOff(t *testing.T) {
	objects := decode(t, render(t, chart, "--set", "admissionPolicy.enabled=false,shareAmounts.check=false"))
	require.Empty(t, all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects))
	require.Empty(t, all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects))
}
