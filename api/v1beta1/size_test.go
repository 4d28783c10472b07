package v1beta1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

const (
	// mostStored is etcd's limit for a request, less a margin for what surrounds the object.
	mostStored = 1536<<10 - 64<<10
	// mostMetadata is what we count for the metadata, managed fields included.
	mostMetadata = 64 << 10
	// mostEscaped is the longest form of a character in JSON: \u003c.
	mostEscaped = 6
	// mostTime is the length of a time, and mostNumber that of a number.
	mostTime, mostNumber = 32, 20
)

// largest adds up the largest JSON of what a schema admits.
type largest struct {
	t *testing.T
	// rules is the size of the largest rules of a profile, of which status has copies without a
	// schema.
	rules int
	// lengths are the lengths of strings that a rule in CEL limits, by path. sums are the sizes of
	// lists that a rule limits in sum, with their parents.
	lengths map[string]int
	sums    map[string]int
}

func newLargest(t *testing.T) *largest {
	const name, rune = 63 + len(`"",`), mostEscaped
	l := &largest{t: t, lengths: map[string]int{"apiVersion": 64, "kind": 64}, sums: map[string]int{
		"status.node.gpus[].partitions":              v1beta1.MaxSumOfNames * (name + len(`{"name":,"profile":""}`) + 16),
		"status.node.gpus[].heldDevices":             0,
		"status.node.gpus[].problems":                v1beta1.MaxGPUs * 2 * (len(`{"reason":"","message":""},`) + 32),
		"status.node.gpus[].pending":                 v1beta1.MaxSumOfTexts * rune,
		"status.node.task.changes[].keptDevices":     v1beta1.MaxSumOfKept * name,
		"status.defragmentation.moves[].toDevices":   0,
		"status.defragmentation.moves[].fromDevices": v1beta1.MaxMovedDevices * name,
	}}
	l.lengths["status.conditions[].type"], l.lengths["status.conditions[].reason"] = 64, 128
	l.lengths["status.conditions[].message"] = v1beta1.MaxConditionMessage
	return l
}

func (l *largest) of(s *apiextensionsv1.JSONSchemaProps, path string) int {
	switch {
	case strings.HasPrefix(path, "status.") && strings.HasSuffix(path, ".rules"):
		return l.rules
	case s.XIntOrString:
		return mostNumber
	case len(s.Enum) > 0:
		most := 0
		for _, e := range s.Enum {
			most = max(most, len(e.Raw))
		}
		return most
	}
	switch s.Type {
	case "object":
		return l.object(s, path)
	case "array":
		n := ptr.Deref(s.MaxItems, 0)
		if ofEnum := s.Items.Schema.Enum; n == 0 && len(ofEnum) > 0 { // a set
			n = int64(len(ofEnum))
		}
		require.NotZero(l.t, n, "%s: a list needs a maximum", path)
		return len("[]") + int(n)*(l.of(s.Items.Schema, path+"[]")+1)
	case "string":
		return l.text(s, path)
	case "integer":
		return mostNumber
	case "boolean":
		return len("false")
	}
	require.Fail(l.t, "unknown type", "%s: %q", path, s.Type)
	return 0
}

func (l *largest) object(s *apiextensionsv1.JSONSchemaProps, path string) int {
	size := len("{}")
	if s.AdditionalProperties != nil {
		n := ptr.Deref(s.MaxProperties, 0)
		require.NotZero(l.t, n, "%s: a map needs a maximum", path)
		return size + int(n)*(317+63+len(`"":"",`)) // All of them are labels.
	}
	for name := range s.Properties {
		of, at := s.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		size += len(name) + len(`"":,`)
		if at == "metadata" {
			size += mostMetadata
		} else if sum, limited := l.sums[at]; !limited {
			size += l.of(&of, at)
		} else {
			require.Contains(l.t, []string{"array", "string"}, of.Type, at)
			size += sum / max(1, l.parents(at))
		}
	}
	return size
}

// parents returns how many objects have a list that is limited in sum.
func (l *largest) parents(path string) int {
	if strings.Contains(path, "moves[]") {
		return v1beta1.MaxMoves
	}
	return v1beta1.MaxGPUs
}

func (l *largest) text(s *apiextensionsv1.JSONSchemaProps, path string) int {
	if s.Format == "date-time" {
		return mostTime
	}
	n, limited := l.lengths[path]
	if !limited {
		n = int(ptr.Deref(s.MaxLength, 0))
	}
	require.NotZero(l.t, n, "%s: a string needs a maximum", path)
	if s.Pattern == "" {
		n *= mostEscaped
	} else {
		// Patterns list what they admit, which JSON does not escape.
		require.NotContains(l.t, s.Pattern, "[^", path)
		require.True(l.t, strings.HasPrefix(s.Pattern, "^") && strings.HasSuffix(s.Pattern, "$"), path)
	}
	return n + len(`""`)
}

// What the API server accepts, it can store: also the largest object, with a copy of the largest
// rules wherever the status has one.
func TestTheLargestObjectsCanBeStored(t *testing.T) {
	l := newLargest(t)
	profiles := readCRD(t, "partitionprofiles").Spec.Versions[0].Schema.OpenAPIV3Schema
	rules := profiles.Properties["spec"].Properties["rules"]
	l.rules = l.of(&rules, "spec.rules")
	for _, name := range []string{"partitionprofiles", "gpunodes", "partitionplans"} {
		size := l.of(readCRD(t, name).Spec.Versions[0].Schema.OpenAPIV3Schema, "")
		t.Logf("%s: %d KiB", name, size>>10)
		assert.LessOrEqual(t, size, mostStored, name)
	}
}
