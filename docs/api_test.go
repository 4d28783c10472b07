package docs_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/golden"
)

// writers say who writes a part of an object. The longest prefix holds.
var writers = map[string][][2]string{
	"PartitionProfile": {{"spec", "people, and the controller for the profiles of the chart and for [configurations of other tools](../admin/migrate.md)"}},
	"GPUResourceMap":   {{"spec", "the controller"}},
	"PartitionPlan":    {{"spec", "people"}, {"status", "the controller"}},
	"GPUNode":          {{"spec", "people, and the controller from labels of the Node"}, {"status", "the controller"}, {"status.node", "the plugin of the node"}},
}

// TestAPIReference: the page of the API is made of the definitions.
func TestAPIReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# API\n\nThe objects of `tranche.dev/v1beta1`, made of their definitions: `kubectl explain gpunode.spec` says the same. Lengths are in characters.\n")
	for _, name := range []string{"partitionprofiles", "partitionplans", "gpunodes", "gpuresourcemaps"} {
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join("../deployments/helm/tranche/files/crds", "tranche.dev_"+name+".yaml"))), &crd))
		kind, schema := crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		fmt.Fprintf(&b, "\n## %s\n\n%s Short name: `%s`.\n", kind, oneLine(schema.Description), crd.Spec.Names.ShortNames[0])
		rows := map[string][][]string{}
		fields(t, schema, "", func(path string, f *apiextensionsv1.JSONSchemaProps, required bool) {
			part := ""
			for _, w := range writers[kind] {
				if path == w[0] || strings.HasPrefix(path, w[0]+".") {
					part = w[0]
				}
			}
			if part != path && part != "" {
				assert.NotEmpty(t, f.Description, "%s %s has no description", kind, path)
				rows[part] = append(rows[part], []string{"`" + strings.TrimPrefix(path, part+".") + "`", typeOf(f), boundsOf(f, required), oneLine(f.Description)})
			}
		})
		for _, w := range writers[kind] {
			fmt.Fprintf(&b, "\n### %s %s\n\nWritten by %s.\n\n%s", kind, w[0], w[1], table([]string{"field", "type", "default, bounds", "meaning"}, rows[w[0]]))
		}
	}
	golden.Equal(t, "reference/api.md", b.String())
}

// fields calls a function with each field of a schema.
func fields(t *testing.T, s *apiextensionsv1.JSONSchemaProps, path string, do func(string, *apiextensionsv1.JSONSchemaProps, bool)) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f, at := s.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		do(at, &f, slices.Contains(s.Required, name))
		if f.Items != nil {
			fields(t, f.Items.Schema, at+"[]", do)
		}
		if f.AdditionalProperties != nil {
			fields(t, f.AdditionalProperties.Schema, at+".NAME", do)
		}
		fields(t, &f, at, do)
	}
}

func typeOf(f *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case f.XIntOrString:
		return "integer or percentage"
	case f.Type == "array":
		return "list of " + plural(typeOf(f.Items.Schema))
	case f.AdditionalProperties != nil:
		return "map of " + plural(typeOf(f.AdditionalProperties.Schema))
	case f.Format == "date-time":
		return "time"
	case f.Type == "":
		return "rules"
	}
	return f.Type
}

func plural(kind string) string {
	if kind == "rules" {
		return kind
	}
	return kind + "s"
}

func boundsOf(f *apiextensionsv1.JSONSchemaProps, required bool) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if required {
		add("required")
	}
	if f.Default != nil {
		add("default `%s`", strings.Trim(string(f.Default.Raw), `"`))
	}
	values := f.Enum
	if f.Items != nil {
		values = f.Items.Schema.Enum
	}
	for _, v := range values {
		add("%s", strings.Trim(string(v.Raw), `"`))
	}
	switch {
	case f.Minimum != nil && f.Maximum != nil:
		add("%v to %v", *f.Minimum, *f.Maximum)
	case f.Minimum != nil:
		add("at least %v", *f.Minimum)
	}
	if f.MaxLength != nil && !f.XIntOrString {
		add("length at most %d", *f.MaxLength)
	}
	if f.MaxItems != nil {
		add("at most %d items", *f.MaxItems)
	}
	if f.Items != nil && f.Items.Schema.MaxLength != nil {
		add("length of each at most %d", *f.Items.Schema.MaxLength)
	}
	if f.MaxProperties != nil {
		add("at most %d entries", *f.MaxProperties)
	}
	return strings.Join(all, ", ")
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
