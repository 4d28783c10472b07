package helm_test

import (
	"cmp"
	"strings"
	"testing"

	gocel "github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// otherClaims stands for a token that says things, but not its node: one that
// was made by `kubectl create token`.
const otherClaims = "other claims"

// write is what somebody does with an object of the cluster: one of a type of
// Kubernetes, or an object of a definition's.
type write struct {
	operation, subresource string
	// user does it, with a token that names the node from.
	user, from    string
	before, after any
}

func creating(o any) write { return write{operation: "CREATE", after: o} }

func replacing(before, after any) write {
	return write{operation: "UPDATE", before: before, after: after}
}

func (w write) request() *admissionv1.AdmissionRequest {
	r := &admissionv1.AdmissionRequest{Operation: admissionv1.Operation(w.operation), SubResource: w.subresource, Name: "node-a"}
	r.UserInfo.Username = cmp.Or(w.user, "x")
	switch w.from {
	case "":
		// The API server leaves the field out where there is nothing in it.
	case otherClaims:
		r.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=x"}}
	default:
		r.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {w.from}}
	}
	return r
}

func (w write) objects() *admission.VersionedAttributes {
	lazy := func(o any) admission.LazyObject {
		if m, ok := o.(object); ok {
			return admission.NewLazyObject(&unstructured.Unstructured{Object: m})
		}
		return admission.NewLazyObject(o.(runtime.Object))
	}
	v := &admission.VersionedAttributes{}
	if w.operation != "CREATE" && w.before != nil {
		v.VersionedOldObject = lazy(w.before)
	}
	if w.operation != "DELETE" && w.after != nil {
		v.VersionedObject = lazy(w.after)
	}
	return v
}

// policy is an admission policy of the chart.
type policy struct {
	t    *testing.T
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec
}

// policyNamed is the policy whose name ends so.
func policyNamed(t *testing.T, objects []runtime.Object, suffix string) policy {
	t.Helper()
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		if strings.HasSuffix(p.Name, suffix) {
			return policy{t, p.Spec}
		}
	}
	require.Fail(t, "no policy "+suffix)
	return policy{}
}

// expression is one of a policy's, as the API server's compiler takes it.
type expression struct {
	name, text string
	returns    *gocel.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*gocel.Type { return []*gocel.Type{e.returns} }

// evaluator evaluates expressions of the policy as the API server does, with the types of
// variables worked out: an expression may pass where everything is dynamic and be refused there.
func (p policy) evaluator(w write) func(text string, returns *gocel.Type) any {
	p.t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(p.t, err)
	options := plugincel.OptionalVariableDeclarations{}
	for _, v := range p.spec.Variables {
		// New expressions must compile on the oldest server that may read them.
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, gocel.AnyType}, options, environment.NewExpressions)
		require.Nil(p.t, result.Error, v.Name)
	}
	objects, request := w.objects(), w.request()
	return func(text string, returns *gocel.Type) any {
		condition := compiler.CompileCondition([]plugincel.ExpressionAccessor{expression{"", text, returns}}, options, environment.NewExpressions)
		require.Empty(p.t, condition.CompilationErrors())
		results, _, err := condition.ForInput(compiler.CreateContext(p.t.Context()), objects, request,
			plugincel.OptionalVariableBindings{}, nil, apiservercel.RuntimeCELCostBudget)
		require.NoError(p.t, err)
		require.NoError(p.t, results[0].Error, text)
		return results[0].EvalResult.Value()
	}
}

// concerns reports whether the policy's conditions let it look at a write.
func (p policy) concerns(w write) bool {
	p.t.Helper()
	evaluate := p.evaluator(w)
	for _, c := range p.spec.MatchConditions {
		if evaluate(c.Expression, gocel.BoolType) != true {
			return false
		}
	}
	return true
}

func (p policy) appliesTo(user string) bool { return p.concerns(write{user: user}) }

// refusal is the message of the first validation that fails. Conditions are not asked.
func (p policy) refusal(w write) string {
	p.t.Helper()
	evaluate := p.evaluator(w)
	for _, v := range p.spec.Validations {
		if evaluate(v.Expression, gocel.BoolType) == true {
			continue
		}
		if v.MessageExpression == "" {
			return v.Message
		}
		return evaluate(v.MessageExpression, gocel.StringType).(string)
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
	objects := decode(t, render(t, chart, "--set", "admissionPolicy.enabled=false,shareAmountChecks.enabled=false,gpuResources.enabled=false"))
	require.Empty(t, all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects))
	require.Empty(t, all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects))
}
