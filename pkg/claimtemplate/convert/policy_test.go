package convert

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/test/golden"
)

// policies.yaml has what the chart has: its policies that change pods and those that refuse them.
func TestPoliciesAreThoseOfTheChart(t *testing.T) {
	data, err := os.ReadFile("../../../deployments/helm/testdata/custom.yaml")
	require.NoError(t, err)
	found, mutating := map[string]policySpec{}, map[string][]admissionv1.Variable{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var o struct {
			Kind     string                                    `json:"kind"`
			Metadata struct{ Name string }                     `json:"metadata"`
			Spec     admissionv1.ValidatingAdmissionPolicySpec `json:"spec"`
		}
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		_, project, is := strings.Cut(o.Metadata.Name, "-translate-")
		switch {
		case !is:
		case o.Kind == "ValidatingAdmissionPolicy":
			found[project] = policySpec{Variables: o.Spec.Variables, Validations: o.Spec.Validations}
		case o.Kind == "MutatingAdmissionPolicy":
			mutating[project] = o.Spec.Variables
		}
	}
	require.Len(t, found, 3)
	for project, spec := range found {
		assert.Equal(t, spec.Variables, mutating[project], project)
		assert.Contains(t, policies(), claimtemplate.Project(project))
	}
	want, err := yaml.Marshal(found)
	require.NoError(t, err)
	golden.Equal(t, "policies.yaml", "# Written by a test, with the expressions of the chart (templates/_translate.tpl).\n"+string(want))
}
