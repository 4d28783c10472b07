package convert

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// source has the variables and validations of the chart's policies, by project.
//
//go:embed policies.yaml
var source []byte

// policySpec has the fields of a ValidatingAdmissionPolicy that this package uses.
type policySpec struct {
	Variables   []admissionv1.Variable   `json:"variables"`
	Validations []admissionv1.Validation `json:"validations"`
}

// policy is a compiled policySpec.
type policy struct {
	policySpec
	variables, validations []cel.Program
}

// policies returns the policies of the projects. It panics if one does not compile; a test checks that.
var policies = sync.OnceValue(func() map[claimtemplate.Project]*policy {
	var specs map[claimtemplate.Project]policySpec
	if err := yaml.UnmarshalStrict(source, &specs); err != nil {
		panic(err)
	}
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType))
	if err != nil {
		panic(err)
	}
	all := map[claimtemplate.Project]*policy{}
	for project, spec := range specs {
		all[project] = &policy{policySpec: spec}
		if err := all[project].compile(env); err != nil {
			panic(fmt.Sprintf("the policy for %s: %v", project, err))
		}
	}
	return all
})

// compile compiles the expressions. A variable has the type of its expression, as in the API server.
func (p *policy) compile(env *cel.Env) error {
	program := func(expression string) (cel.Program, *cel.Type, error) {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return nil, nil, issues.Err()
		}
		made, err := env.Program(ast)
		return made, ast.OutputType(), err
	}
	for _, v := range p.Variables {
		made, kind, err := program(v.Expression)
		if err == nil {
			env, err = env.Extend(cel.Variable(variable+v.Name, kind))
		}
		if err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
		p.variables = append(p.variables, made)
	}
	for _, v := range p.Validations {
		made, _, err := program(v.Expression)
		if err != nil {
			return fmt.Errorf("validation %s: %w", v.Expression, err)
		}
		p.validations = append(p.validations, made)
	}
	return nil
}

// variable is the prefix of the names of variables.
const variable = "variables."

// evaluated has the variables of a policy for a pod. Variables that cannot be computed are missing; the
// policies do not use them for such a pod.
type evaluated struct {
	*policy
	input map[string]any
}

func evaluate(project claimtemplate.Project, pod *corev1.PodTemplateSpec) (evaluated, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return evaluated{}, err
	}
	if spec, ok := object["spec"].(map[string]any); ok && spec["containers"] == nil {
		spec["containers"] = []any{}
	}
	e := evaluated{policies()[project], map[string]any{"object": object}}
	for i, program := range e.variables {
		if value, _, err := program.Eval(e.input); err == nil {
			e.input[variable+e.Variables[i].Name] = value
		}
	}
	return e, nil
}

// read decodes a variable, if it exists.
func (e evaluated) read(name string, into any) error {
	value, ok := e.input[variable+name].(ref.Val)
	if !ok {
		return nil
	}
	plain, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return fmt.Errorf("read variable %s: %w", name, err)
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("read variable %s: %w", name, err)
	}
	return json.Unmarshal(data, into)
}

// unmet returns the messages of the validations that a pod fails. Validations of problems have none.
func (e evaluated) unmet() (messages []string) {
	for i, program := range e.validations {
		if met, _, err := program.Eval(e.input); err == nil && met.Value() != true && e.Validations[i].Message != "" {
			messages = append(messages, strings.TrimSpace(e.Validations[i].Message))
		}
	}
	return messages
}
