package strict

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

type sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              spec `json:"spec"`
}

type spec struct {
	Rules []rule            `json:"rules,omitempty"`
	Names map[string]string `json:"names,omitempty"`
	Free  any               `json:"free,omitempty"`
	More  map[string][]spec `json:"more,omitempty"`
	Share float64           `json:"share,omitempty"`
}

type rule struct {
	After   *metav1.Duration `json:"after,omitempty"`
	Sharing *sharing         `json:"sharing,omitempty"`
	Next    *rule            `json:"next,omitempty"`
}

type sharing struct {
	Replicas  *int32  `json:"replicas,omitempty"`
	TimeSlice string  `json:"timeSlice,omitempty"`
	Enabled   *bool   `json:"enabled,omitempty"`
	Indexes   []uint8 `json:"indexes,omitempty"`
	hidden    int     //nolint:unused // fields that are not exported are not keys
	Ignored   int     `json:"-"`
}

func TestMistakesAreRefusedByPath(t *testing.T) {
	for name, tt := range map[string]struct{ document, want string }{
		"misspelt": {"spec: {rules: [{sharing: {replica: 2}}]}", "f.yaml: spec.rules[0].sharing.replica: unknown key; did you mean replicas?"},
		"other case": {"spec: {rules: [{}, {sharing: {timeslice: Short}}]}",
			"f.yaml: spec.rules[1].sharing.timeslice: unknown key; did you mean timeSlice?"},
		"swapped letters":                 {"spec: {rules: [{sharing: {replcias: 2}}]}", "spec.rules[0].sharing.replcias: unknown key; did you mean replicas?"},
		"wrong place":                     {"spec: {rules: [{timeSlice: Short}]}", "f.yaml: spec.rules[0].timeSlice: unknown key; it belongs to spec.rules[].sharing"},
		"key of a type that reads itself": {"spec: {rules: [{after: 5s, Duration: 3}]}", "f.yaml: spec.rules[0].Duration: unknown key; valid keys are after, next, sharing"},
		"what reads itself":               {"spec: {rules: [{after: soon}]}", "f.yaml: time: invalid duration"},
		"unknown": {"spec: {colour: red}",
			"f.yaml: spec.colour: unknown key; valid keys are free, more, names, rules, share"},
		"hidden field":  {"spec: {rules: [{sharing: {hidden: 2}}]}", "sharing.hidden: unknown key"},
		"ignored field": {"spec: {rules: [{sharing: {Ignored: 2}}]}", "sharing.Ignored: unknown key"},
		"twice":         {"spec:\n  rules:\n  - sharing:\n      replicas: 2\n      replicas: 3\n", "f.yaml: spec.rules[0].sharing.replicas: duplicate key"},
		"twice in a map": {"spec: {names: {a: x, a: z}}",
			"f.yaml: spec.names.a: duplicate key"},
		"twice in what has no type": {"spec: {free: [{a: {b: 1, b: 2}}]}", "f.yaml: spec.free[0].a.b: duplicate key"},
		"twice in JSON":             {`{"spec": {"share": 1, "share": 2}}`, "f.yaml: spec.share: duplicate key"},
		"text for a number":         {"spec: {rules: [{sharing: {replicas: ten}}]}", `f.yaml: spec.rules[0].sharing.replicas: must be a whole number, not "ten"`},
		"quoted number":             {`spec: {rules: [{sharing: {replicas: "10"}}]}`, `replicas: must be a whole number, not "10"`},
		"fraction for a number":     {"spec: {rules: [{sharing: {replicas: 1.5}}]}", "replicas: must be a whole number, not 1.5"},
		"too large a number":        {"spec: {rules: [{sharing: {replicas: 2147483648}}]}", "replicas: must be a whole number, not 2147483648"},
		"negative where none is":    {"spec: {rules: [{sharing: {indexes: [0, -1]}}]}", "spec.rules[0].sharing.indexes[1]: must be a whole number, not -1"},
		"number for a text":         {"spec: {rules: [{sharing: {timeSlice: 3}}]}", "timeSlice: must be a string, not 3: put it in quotes"},
		"switch for a text":         {"spec: {rules: [{sharing: {timeSlice: on}}]}", "timeSlice: must be a string, not true: put it in quotes"},
		"text for a switch":         {`spec: {rules: [{sharing: {enabled: "true"}}]}`, `enabled: must be true or false, not "true"`},
		"text for a decimal":        {"spec: {share: half}", `spec.share: must be a number, not "half"`},
		"object for a list":         {"spec: {rules: {sharing: {}}}", "f.yaml: spec.rules: must be a list, not an object"},
		"list for an object":        {"spec: [{rules: []}]", "f.yaml: spec: must be an object, not a list"},
		"odd key":                   {`spec: {names: {"a.b/c": 1}}`, `f.yaml: spec.names.a.b/c: must be a string, not 1: put it in quotes`},
		"several at once": {"spec: {colour: red, rules: [{nxt: {}}], names: {a: x, a: z}}",
			"f.yaml: spec.names.a: duplicate key; spec.colour: unknown key; valid keys are free, more, names, rules, share; spec.rules[0].nxt: unknown key; did you mean next?"},
		"a type with a duplicate": {"spec: {rules: 3, names: {a: x, a: z}}", "f.yaml: spec.names.a: duplicate key; spec.rules: must be a list, not 3"},
		"dots in a key":           {"spec: {more: {a.b: [{}, {name: x}]}}", "f.yaml: spec.more.a.b[1].name: unknown key; did you mean names?"},
		"below a list in a map":   {"spec: {more: {a.b: [{rules: [{names: {}}]}]}}", "f.yaml: spec.more.a.b[0].rules[0].names: unknown key; it belongs to spec"},
		"a key of metadata":       {"spec: {labels: {a: b}}", "f.yaml: spec.labels: unknown key; valid keys are free, more, names, rules, share"},
		"deep in metadata":        {"metadata: {label: {}}", "f.yaml: metadata.label: unknown key; did you mean labels?"},
		"decoder's own":           {"metadata: {creationTimestamp: yesterday}", `f.yaml: parsing time "yesterday"`},
		"by a merge key":          {"x-base: &b {replica: 3}\nspec: {rules: [{sharing: {<<: *b}}]}", `replica: unknown key; did you mean replicas? (line 2); x-base: unknown key`},
		"merged unseen":           {"spec: {free: &b {replica: 3}, rules: [{sharing: {<<: *b}}]}", `f.yaml: spec.rules[0].sharing.replica: unknown key; did you mean replicas?`},
		"empty":                   {"", "f.yaml: it is empty"},
		"comments":                {"# nothing\n", "f.yaml: it is empty"},
		"null":                    {"null\n", "f.yaml: it is empty"},
		"a list":                  {"- spec\n", "f.yaml: it must be an object"},
		"a word":                  {"spec\n", "f.yaml: it must be an object"},
		"two documents":           {"spec: {}\n---\nspec: {}\n", "f.yaml: it has more than one document"},
		"broken":                  {"spec: {\n", "f.yaml: yaml: line"},
		"broken after":            {"spec: {}\n---\n{\n", "f.yaml: yaml: line"},
		"tab":                     {"spec:\n\trules: []\n", "f.yaml: yaml: line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			into := sample{Spec: spec{Share: 7}}
			err := Decode("f.yaml", []byte(tt.document), &into)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, sample{Spec: spec{Share: 7}}, into, "an error changes nothing")
		})
	}
}

func TestDecode(t *testing.T) {
	two, yes := int32(2), true
	want := sample{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Sample"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x/y": "z"}},
		Spec: spec{
			Rules: []rule{{Sharing: &sharing{Replicas: &two, TimeSlice: "0000:41:00.0", Enabled: &yes, Indexes: []uint8{0, 255}}}, {}},
			Free:  map[string]any{"a": []any{int64(1), "b"}},
			Share: 1,
		},
	}
	for name, document := range map[string]string{
		"YAML": `---
apiVersion: v1
kind: Sample
metadata: {name: a, creationTimestamp: null, labels: {x/y: z}}
spec:
  rules:
  - sharing: {replicas: 2, timeSlice: 0000:41:00.0, enabled: yes, indexes: [0, 255]}
  - sharing:
  names:
  free: {a: [1, b]}
  share: 1
---
`,
		"JSON": `{"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a", "labels": {"x/y": "z"}},
 "spec": {"rules": [{"sharing": {"replicas": 2, "timeSlice": "0000:41:00.0", "enabled": true, "indexes": [0, 255]}}, {}],
 "free": {"a": [1, "b"]}, "share": 1.0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			into := sample{Spec: spec{Share: 7, Names: map[string]string{"old": "value"}}}
			require.NoError(t, Decode("f", []byte(document), &into))
			assert.Equal(t, want, into)
		})
	}
}

// A project that reads its files with Go's encoding/json ignores the case of keys.
func TestAnyCase(t *testing.T) {
	for document, want := range map[string]string{
		"{SPEC: {Share: 2, rules: [{Sharing: {timeslice: Short}}]}}": "",
		"{spec: {Rules: [], rules: []}}":                             "f: spec.rules: duplicate key",
		"{spec: {rulez: []}}":                                        "f: spec.rulez: unknown key; did you mean rules?",
		"{SPEC: {share: half}}":                                      `f: SPEC.share: must be a number, not "half"`,
	} {
		into := sample{Spec: spec{Share: 7}}
		_, err := Text{File: "f", Data: []byte(document), AnyCase: true}.Decode(&into)
		if want != "" {
			require.EqualError(t, err, want)
			assert.EqualValues(t, 7, into.Spec.Share)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, spec{Share: 2, Rules: []rule{{Sharing: &sharing{TimeSlice: "Short"}}}}, into.Spec)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	p := NewProblems("f")
	require.NoError(t, p.Err())
	for i := range maxReported + 3 {
		p.Add(Index("x", i), "wrong")
		require.Equal(t, i >= maxReported, strings.Contains(p.Err().Error(), " more"))
	}
	require.ErrorContains(t, p.Err(), "x[9]: wrong; and 3 more")
	require.NotContains(t, p.Err().Error(), "x[10]")
	require.NotContains(t, p.Err().Error(), "x[12]")
}

func TestNear(t *testing.T) {
	names := []string{"failRequestsGreaterThanOne", "flags", "mps", "renameByDefault", "replicas", "timeSlicing"}
	for key, want := range map[string]string{
		"failRequestGreaterThanOne": "failRequestsGreaterThanOne",
		"flages":                    "flags",
		"MPS":                       "mps",
		"time-slicing":              "timeSlicing",
		"timeslicing":               "timeSlicing",
		"rename":                    "",
		"replicas2":                 "replicas",
		"m":                         "",
		"":                          "",
		"colour":                    "",
	} {
		assert.Equal(t, want, near(key, names), key)
	}
}

// What is taken is what an ordinary decoder would have read.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("spec: {rules: [{sharing: {replicas: 2, timeSlice: Short}}], free: {a: 1}}"))
	f.Add([]byte("spec:\n  names: {a: b}\n---\n"))
	f.Add([]byte("metadata: {name: x}\nspec: {share: .inf}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? [a]\n: b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var into sample
		if err := Decode("f", data, &into); err != nil {
			require.Contains(t, err.Error(), "f: ")
			return
		}
		var lenient sample
		require.NoError(t, yaml.Unmarshal(data, &lenient))
		want, err := json.Marshal(lenient)
		if err != nil {
			return // JSON has no infinity
		}
		got, err := json.Marshal(into)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	})
}
