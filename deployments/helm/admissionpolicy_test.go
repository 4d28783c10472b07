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

// otherClaims stands for a token that says things, but not its node: one that
// was made by `kubectl create token`.
const otherClaims = "other claims"

// policy evaluates the chart's admission policy with the CEL library of the
// API server.
type policy struct {
	t    *testing.T
	env  *gocel.Env
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec
}

func newPolicy(t *testing.T, objects []runtime.Object) policy {
	t.Helper()
	return policyNamed(t, objects, "-resourceslices")
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

// refusal returns the message of the first validation that fails.
func (p policy) refusal(operation, tokenNode string, slice map[string]any) string {
	p.t.Helper()
	user := map[string]any{"username": "x"}
	switch tokenNode {
	case "":
		// The API server leaves the field out where there is nothing in it.
	case otherClaims:
		user["extra"] = map[string]any{"authentication.kubernetes.io/credential-id": []string{"JTI=x"}}
	default:
		user["extra"] = map[string]any{"authentication.kubernetes.io/node-name": []string{tokenNode}}
	}
	return p.firstRefusal(map[string]any{
		"request":   map[string]any{"operation": operation, "userInfo": user},
		"object":    map[string]any{"spec": slice},
		"oldObject": map[string]any{"spec": slice},
	}, operation)
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

func TestAdmissionPolicy(t *testing.T) {
	objects := decode(t, render(t, chart))
	policy := newPolicy(t, objects)
	require.Equal(t, admissionregistrationv1.Fail, *policy.spec.FailurePolicy)
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
		policy.spec.MatchConstraints.ResourceRules[0].Operations)
	requireBound(t, objects)

	require.True(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:serviceaccount:elsewhere:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:node:node-a"))

	slice := func(driver, node string) map[string]any {
		spec := map[string]any{"driver": driver}
		if node != "" {
			spec["nodeName"] = node
		}
		return spec
	}
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
		for name, test := range map[string]struct {
			tokenNode string
			slice     map[string]any
			want      string
		}{
			"own slice": {"node-a", slice(driver, "node-a"), ""},
			"another node's": {"node-a", slice(driver, "node-b"),
				"tranche-kubelet-plugin on node 'node-a' may write only ResourceSlices of that node, and this one is of node 'node-b'"},
			"no node's": {"node-a", slice(driver, ""),
				"tranche-kubelet-plugin on node 'node-a' may write only ResourceSlices of that node, and this one is of no single node"},
			"another driver's": {"node-a", slice("gpu.nvidia.com", "node-a"),
				"tranche-kubelet-plugin may write only ResourceSlices of driver gpu.tranche.dev, and this one is of 'gpu.nvidia.com'"},
			"token without a node": {"", slice(driver, "node-a"),
				"the token names no node: tranche-kubelet-plugin may write ResourceSlices only from its pods, with the token that the kubelet mounts there"},
			"token and slice without a node": {"", slice(driver, ""),
				"the token names no node: tranche-kubelet-plugin may write ResourceSlices only from its pods, with the token that the kubelet mounts there"},
			"token with other claims only": {otherClaims, slice(driver, "node-a"),
				"the token names no node: tranche-kubelet-plugin may write ResourceSlices only from its pods, with the token that the kubelet mounts there"},
		} {
			t.Run(operation+" "+name, func(t *testing.T) {
				require.Equal(t, test.want, policy.refusal(operation, test.tokenNode, test.slice))
			})
		}
	}
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
