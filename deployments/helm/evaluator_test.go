package helm_test

import (
	"testing"

	gocel "github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is one of a policy's, as the API server's compiler takes it.
type expression struct {
	name, text string
	returns    *gocel.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*gocel.Type { return []*gocel.Type{e.returns} }

// TestSharePolicyInTheAPIServersEvaluator runs the policy over typed objects with
// the types of variables worked out, as the API server does: an expression may pass
// where everything is dynamic and be refused there.
func TestSharePolicyInTheAPIServersEvaluator(t *testing.T) {
	var spec admissionregistrationv1.ValidatingAdmissionPolicySpec
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](decode(t, render(t, chart))) {
		if p.Name == "tranche-share-amounts" {
			spec = p.Spec
		}
	}
	require.NotEmpty(t, spec.Validations)
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: byFraction,
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				"fraction": resource.MustParse("0.3333"), "compute": resource.MustParse("25"),
			}},
		}}},
	}}}
	const refused = "request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 333300u, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"
	require.Equal(t, refused, refusalByServer(t, spec, "ResourceClaim", claim))
	template := &resourceapi.ResourceClaimTemplate{Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec}}
	require.Equal(t, refused, refusalByServer(t, spec, "ResourceClaimTemplate", template))
	claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["fraction"] = resource.MustParse("0.333")
	require.Empty(t, refusalByServer(t, spec, "ResourceClaim", claim))
	claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("1Gi")
	require.Contains(t, refusalByServer(t, spec, "ResourceClaim", claim), "asks for memory 1Gi")
}

// refusalByServer returns the message of the first validation that fails.
func refusalByServer(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec, kind string, made runtime.Object) string {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: kind}
	return evaluate(t, spec, spec.MatchConditions, &admissionv1.AdmissionRequest{}, &admission.VersionedAttributes{
		Attributes:    admission.NewAttributesRecord(made, nil, gvk, "default", "x", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil),
		VersionedKind: gvk, VersionedObject: admission.NewLazyObject(made),
	})
}

// refusalOf returns the message of the first validation that fails, if who has a token
// that names a node writes an object of the cluster: one of a type of Kubernetes, or an
// object of a definition's. Conditions are not asked.
func refusalOf(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec, operation, tokenNode string, before, after any) string {
	t.Helper()
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Operation(operation), Name: "node-a", UserInfo: authenticationv1.UserInfo{Username: "x"}}
	if tokenNode != "" {
		request.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {tokenNode}}
	}
	versioned := &admission.VersionedAttributes{}
	var was, is runtime.Object
	if operation != "CREATE" {
		was = asRuntime(before)
		versioned.VersionedOldObject = admission.NewLazyObject(was)
	}
	if operation != "DELETE" {
		is = asRuntime(after)
		versioned.VersionedObject = admission.NewLazyObject(is)
	}
	versioned.Attributes = admission.NewAttributesRecord(is, was, schema.GroupVersionKind{}, "", "node-a", schema.GroupVersionResource{}, "", admission.Operation(operation), nil, false, nil)
	return evaluate(t, spec, nil, request, versioned)
}

func asRuntime(o any) runtime.Object {
	if m, ok := o.(object); ok {
		return &unstructured.Unstructured{Object: m}
	}
	return o.(runtime.Object)
}

func evaluate(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec, match []admissionregistrationv1.MatchCondition,
	request *admissionv1.AdmissionRequest, versioned *admission.VersionedAttributes,
) string {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	options := plugincel.OptionalVariableDeclarations{}
	for _, v := range spec.Variables {
		// New expressions must compile on the oldest server that may read them.
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, gocel.AnyType}, options, environment.NewExpressions)
		require.Nil(t, result.Error, v.Name)
	}
	run := func(expressions ...plugincel.ExpressionAccessor) []plugincel.EvaluationResult {
		evaluator := compiler.CompileCondition(expressions, options, environment.NewExpressions)
		require.Empty(t, evaluator.CompilationErrors())
		results, _, err := evaluator.ForInput(compiler.CreateContext(t.Context()), versioned, request,
			plugincel.OptionalVariableBindings{}, nil, apiservercel.RuntimeCELCostBudget)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Error)
		}
		return results
	}
	for _, c := range match {
		require.Equal(t, true, run(expression{"", c.Expression, gocel.BoolType})[0].EvalResult.Value())
	}
	for _, v := range spec.Validations {
		if run(expression{"", v.Expression, gocel.BoolType})[0].EvalResult.Value() == true {
			continue
		}
		if v.MessageExpression == "" {
			return v.Message
		}
		return run(expression{"", v.MessageExpression, gocel.StringType})[0].EvalResult.Value().(string)
	}
	return ""
}
