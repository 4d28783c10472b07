package profile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
)

// Rules that were stored in the shape of a version are decoded as they were meant, by every later program.
func TestStoredRules(t *testing.T) {
	var want []v1beta1.Rule
	filled.Value(&want)
	s := Snapshot("p", want)
	assert.Equal(t, "v1beta1", s.RulesVersion)
	golden.JSON(t, "testdata/rules-v1beta1.json", s.Rules.Raw)
	got, err := StoredRules(&s)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	s.Rules.Raw = []byte(strings.Replace(string(s.Rules.Raw), `{"`, `{"added":{"later":true},"`, 1))
	got, err = StoredRules(&s)
	require.NoError(t, err)
	assert.Equal(t, want, got, "what a later program added to the version")
}

func TestStoredRulesThatAreMissing(t *testing.T) {
	s := Snapshot("", nil)
	assert.Nil(t, s.Rules)
	assert.Empty(t, s.RulesVersion)
	got, err := StoredRules(&s)
	require.NoError(t, err)
	assert.Empty(t, got)
	got, err = StoredRules(&v1beta1.ProfileSnapshot{RulesVersion: "v1beta1"})
	require.NoError(t, err)
	assert.Empty(t, got)
}

// Rules are never guessed.
func TestStoredRulesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ version, rules, want string }{
		"a newer version":  {"v2", `[{"gpus":{}}]`, `the stored rules of profile p have version "v2", and this version of Tranche reads v1beta1: run the version again that stored them`},
		"no version":       {"", `[{"gpus":{}}]`, `have version ""`},
		"of another shape": {"v1beta1", `[{"gpus":[]}]`, "decode the stored rules of profile p"},
		"not JSON":         {"v1beta1", `[`, "decode the stored rules of profile p"},
	} {
		t.Run(name, func(t *testing.T) {
			s := v1beta1.ProfileSnapshot{ProfileName: "p", RulesVersion: test.version, Rules: &runtime.RawExtension{Raw: []byte(test.rules)}}
			_, err := StoredRules(&s)
			require.ErrorContains(t, err, test.want)
			_, err = Resolve(s, nil, nil)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// What an API server returns is what was written.
func TestStoredRulesAreSorted(t *testing.T) {
	s := Snapshot("p", rulesOf(t, "[{sharing: {replicas: 2, wholeGPUs: true}, gpus: {productNames: ['<&>'], count: 3}}]"))
	var object map[string]any
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &object))
	data, err = json.Marshal(object["rules"])
	require.NoError(t, err)
	assert.Equal(t, string(data), string(s.Rules.Raw))
}
