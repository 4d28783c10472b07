package formats_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/strict"
)

const plan = `apiVersion: infrastructure.silogen.ai/v1alpha1
kind: PartitioningPlan
metadata: {name: plan}
spec:
`

func TestReadKaiwo(t *testing.T) {
	const brought = "this is the profile that Kaiwo brings; if the ConfigMap of the device config manager has its own cpx, convert that in place of this"
	for name, tt := range map[string]struct {
		kind, text string
		// brings is the profile that Kaiwo brings, with its note.
		brings, note string
		notes        []string
	}{
		"KaiwoNode": {"KaiwoNode", "metadata: {name: node-a}\nspec: {partitioning: {enabled: true, profile: cpx}}\nstatus: {phase: Completed}\n",
			"cpx", "spec.partitioning.profile: " + brought, []string{"run: kubectl label node node-a tranche.dev/profile=cpx"}},
		"KaiwoNode that is not enabled": {"KaiwoNode", "metadata: {name: node-a}\nspec: {partitioning: {profile: cpx}}\n",
			"", "", []string{"spec.partitioning.enabled: is false: the GPUs stay as they are, so the node needs no label"}},
		"PartitioningProfile": {"PartitioningProfile", "metadata: {name: a}\nspec: {description: x, dcmProfileName: CPX_NPS1, targetSelector: {matchLabels: {a: b}}, expectedResources: {amd.com/gpu: 64}}\n",
			"", "", []string{
				"spec.targetSelector: nothing checks the labels of nodes; a profile that does not fit a node's GPUs is refused",
				"spec.expectedResources: the GPUs are read back after a switch; nothing counts the node's resources",
				"the profile cpx-nps1 is in the ConfigMap of the device config manager: convert that, too",
				"run, for each node that should have it: kubectl label node NODE tranche.dev/profile=cpx-nps1",
			}},
		"an older PartitioningProfile": {"PartitioningProfile", "metadata: {name: a}\nspec: {displayName: x, profileName: cpx}\n",
			"cpx", "spec.dcmProfileName: " + brought, []string{"run, for each node that should have it: kubectl label node NODE tranche.dev/profile=cpx"}},
		"PartitioningPlan": {"PartitioningPlan", plan + "  dryRun: true\n  rollout: {maxParallel: 2, excludeControlPlane: false}\n  verification: {timeout: 5m}\n  rules:\n  - description: x\n    selector: {matchLabels: {role: inference}}\n    profile: {dcmProfileName: cpx, expectedResources: {amd.com/gpu: \"64\"}}\n",
			"cpx", "spec.rules[0].profile.dcmProfileName: " + brought, []string{
				"spec: the plan is paused or a dry run: it changes no node until somebody starts it; the same holds for the labels",
				"spec.rollout: the number of nodes that switch at a time is the chart's value controller.maxUnavailable",
				"spec.verification, spec.defaults: have no counterpart; the GPUs are always read back after a switch",
				"spec.rules[0].profile.expectedResources: the GPUs are read back after a switch; nothing counts the node's resources",
				"run: kubectl label nodes -l 'role=inference' tranche.dev/profile=cpx",
			}},
		"an older PartitioningPlan": {"PartitioningPlan", plan + "  partitionings:\n  - selector: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}\n    profileRef: {name: mi300x}\n",
			"", "", []string{"run: kubectl label nodes -l '!node-role.kubernetes.io/control-plane,pool in (a,b)' tranche.dev/profile=PROFILE, with the dcmProfileName of the PartitioningProfile mi300x as PROFILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, notes, err := formats.ReadKaiwo(tt.kind, strict.Text{File: "f", Data: []byte(tt.text)})
			require.NoError(t, err)
			assert.Equal(t, tt.notes, notes)
			if tt.brings == "" {
				assert.Empty(t, profiles)
				return
			}
			require.Len(t, profiles, 1)
			assert.Equal(t, tt.brings, profiles[0].Original)
			assert.Equal(t, []string{tt.note}, profiles[0].Notes)
			assert.Equal(t, &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "cpx"}, profiles[0].Spec.Rules[0].ExtendedResource)
			_, err = profile.FromRules("x", profiles[0].Spec.Rules)
			require.NoError(t, err)
		})
	}
}

func TestKaiwoRefused(t *testing.T) {
	for name, tt := range map[string]struct{ kind, text, want string }{
		"another profile":     {"KaiwoNode", "metadata: {name: a}\nspec:\n  partitioning:\n    enabled: true\n    profile: dpx\n", `f: spec.partitioning.profile: is "dpx", it can be spx or cpx (line 5)`},
		"unknown key":         {"KaiwoNode", "spec: {partitioning: {enable: true}}", "f: spec.partitioning.enable: unknown key; did you mean enabled?"},
		"no profile":          {"PartitioningProfile", "spec: {}", "f: spec.dcmProfileName: is missing"},
		"a name that cannot":  {"PartitioningProfile", "spec: {dcmProfileName: a b}", `f: spec.dcmProfileName: "a b" cannot be the name of a PartitionProfile`},
		"no rules":            {"PartitioningPlan", plan + "  paused: true\n", "f: spec.rules: names no nodes"},
		"a rule without":      {"PartitioningPlan", plan + "  rules:\n  - selector: {}\n", "f: spec.rules[0].profile: is missing (line 6)"},
		"a wrong selector":    {"PartitioningPlan", plan + "  rules:\n  - selector: {matchExpressions: [{key: a, operator: Like}]}\n", "f: spec.rules[0].selector: "},
		"another kind of his": {"KaiwoJob", "spec: {}", "f: is of the kind KaiwoJob, there are"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := formats.ReadKaiwo(tt.kind, strict.Text{File: "f", Data: []byte(tt.text)})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzReadKaiwo(f *testing.F) {
	f.Add([]byte(plan + "  rules: [{selector: {}, profile: {dcmProfileName: spx}}]"))
	f.Add([]byte("metadata: {name: a}\nspec: {partitioning: {enabled: true, profile: spx}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range formats.KaiwoKinds {
			profiles, _, err := formats.ReadKaiwo(kind, strict.Text{File: "f", Data: data})
			if err != nil {
				require.Empty(t, profiles)
			}
			for _, p := range profiles {
				_, err := profile.FromRules("x", p.Spec.Rules)
				require.NoError(t, err)
			}
		}
	})
}
