package helm_test

import (
	"testing"

	gocel "github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	options := plugincel.OptionalVariableDeclarations{}
	for _, v := range spec.Variables {
		// New expressions must compile on the oldest server that may read them.
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, gocel.AnyType}, options, environment.NewExpressions)
		require.Nil(t, result.Error, v.Name)
	}
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for _, c := range spec.MatchConditions {
		conditions = append(conditions, expression{"", c.Expression, gocel.BoolType})
	}
	for _, v := range spec.Validations {
		validations = append(validations, expression{"", v.Expression, gocel.BoolType})
		messages = append(messages, expression{"", v.MessageExpression, gocel.StringType})
	}
	gvk := schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: kind}
	attributes := admission.NewAttributesRecord(made, nil, gvk, "default", "x", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(made)}
	run := func(expressions []plugincel.ExpressionAccessor) []plugincel.EvaluationResult {
		evaluator := compiler.CompileCondition(expressions, options, environment.NewExpressions)
		require.Empty(t, evaluator.CompilationErrors())
		results, _, err := evaluator.ForInput(compiler.CreateContext(t.Context()), versioned, &admissionv1.AdmissionRequest{},
			plugincel.OptionalVariableBindings{}, nil, apiservercel.RuntimeCELCostBudget)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Error)
		}
		return results
	}
	for _, r := range run(conditions) {
		require.Equal(t, true, r.EvalResult.Value())
	}
	for i, r := range run(validations) {
		if r.EvalResult.Value() != true {
			return run(messages)[i].EvalResult.Value().(string)
		}
	}
	return ""
}
