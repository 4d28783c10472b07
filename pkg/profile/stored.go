package profile

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile/hash"
)

// rulesVersion is the version of the API in whose shape rules are stored. The shape of a version does not change:
// what it gets later is optional, and without effect on programs that do not know it. A version is read as
// long as there may be rules of it.
const rulesVersion = "v1beta1"

// Snapshot returns a version of a profile as it is stored in the status of GPUNodes and PartitionPlans, and
// on nodes. stored are hashes that may be of the same content; see hash.Of.
func Snapshot(name string, rules []v1beta1.Rule, stored ...string) v1beta1.ProfileSnapshot {
	s := v1beta1.ProfileSnapshot{ProfileName: name, Hash: hash.Of(name, rules, stored...)}
	if len(rules) > 0 {
		s.RulesVersion, s.Rules = rulesVersion, &runtime.RawExtension{Raw: encodeRules(rules)}
	}
	return s
}

// encodeRules returns the JSON that the API server returns, with sorted keys. Otherwise a status would differ
// from what was written.
func encodeRules(rules []v1beta1.Rule) []byte {
	data, err := json.Marshal(rules)
	var sorted any
	if err == nil {
		err = json.Unmarshal(data, &sorted)
	}
	if err == nil {
		data, err = json.Marshal(sorted)
	}
	if err != nil {
		panic("profile: encode rules: " + err.Error()) // cannot happen: all types can be encoded
	}
	return data
}

// StoredRules returns the rules of a snapshot. It fails if they have the shape of a version that this
// program does not know.
func StoredRules(s *v1beta1.ProfileSnapshot) ([]v1beta1.Rule, error) {
	if s.Rules == nil && s.RulesVersion == "" {
		return nil, nil
	}
	if s.RulesVersion != rulesVersion {
		return nil, fmt.Errorf("the stored rules of profile %s have version %q, and this version of Tranche reads %s: run the version again that stored them",
			s.ProfileName, s.RulesVersion, rulesVersion)
	}
	if s.Rules == nil {
		return nil, nil
	}
	var rules []v1beta1.Rule
	if err := json.Unmarshal(s.Rules.Raw, &rules); err != nil {
		return nil, fmt.Errorf("decode the stored rules of profile %s: %w", s.ProfileName, err)
	}
	return rules, nil
}
