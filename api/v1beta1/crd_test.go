package v1beta1_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const crds = "../../deployments/helm/tranche/files/crds"

// resource judges objects as the API server does that has a CRD.
type resource struct {
	crd        *apiextensions.CustomResourceDefinition
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func readCRD(t testing.TB, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(crds, "tranche.dev_"+name+".yaml"))
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(data, &crd))
	return &crd
}

func load(t testing.TB, name string) *resource {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	crd := readCRD(t, name)
	scheme.Default(crd)
	r := &resource{crd: &apiextensions.CustomResourceDefinition{}}
	require.NoError(t, scheme.Convert(crd, r.crd, nil))
	version, err := apiextensions.GetSchemaForVersion(r.crd, crd.Spec.Versions[0].Name)
	require.NoError(t, err)
	r.structural, err = schema.NewStructural(version.OpenAPIV3Schema)
	require.NoError(t, err)
	r.schema, _, err = validation.NewSchemaValidator(version.OpenAPIV3Schema)
	require.NoError(t, err)
	r.rules = cel.NewValidator(r.structural, true, celconfig.PerCallLimit)
	return r
}

// judge is what the API server answers to an object, empty where it takes it.
func (r *resource) judge(t testing.TB, document string) string {
	t.Helper()
	object := decode(t, document)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, r.structural)
	defaulting.Default(object, r.structural)
	unknown := pruning.PruneWithOptions(object, r.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var texts []string
	for _, path := range unknown {
		texts = append(texts, path+": unknown")
	}
	errs := validation.ValidateCustomResource(nil, object, r.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, object)...)
	if len(errs) == 0 {
		errs, _ = r.rules.Validate(t.Context(), nil, r.structural, object, nil, math.MaxInt64)
	}
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "\n")
}

// decode reads a document as the API server does, whose numbers are whole.
func decode(t testing.TB, document string) (object map[string]any) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(document))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &object))
	return object
}

// The API server takes the definitions: their schemas are structural, and their
// rules compile and are cheap enough.
func TestDefinitionsAreTaken(t *testing.T) {
	for _, name := range []string{"partitionprofiles", "partitionplans", "gpunodes", "gpuresourcemaps"} {
		r := load(t, name)
		r.crd.Status.StoredVersions = []string{r.crd.Spec.Versions[0].Name}
		assert.Empty(t, crdvalidation.ValidateCustomResourceDefinition(t.Context(), r.crd), name)
	}
}

// The whole of a profile's rules stays far within what the API server spends on one
// object, also for the largest.
func TestLargestProfile(t *testing.T) {
	rule := "{gpus: {vendor: nvidia, productNames: [" + strings.Repeat("x", 64) + "]}, mig: {mode: Static, partitions: ["
	for i := range 16 {
		count := ", count: 16"
		if i == 0 {
			count = ""
		}
		rule += "{profile: " + strings.Repeat("1", i+1) + "g" + count + "},"
	}
	rule += "]}, sharing: {partitions: {profiles: ["
	for i := range 32 {
		rule += "1g.1" + strings.Repeat("0", i%20) + strings.Repeat("1", i/20) + "gb,"
	}
	rule += "]}}}"
	r := load(t, "partitionprofiles")
	document := profileOf("rules: [" + strings.Repeat(rule+",", 16) + "]")
	require.Empty(t, r.judge(t, document))
	object := decode(t, document)
	_, left := r.rules.Validate(t.Context(), field.NewPath(""), r.structural, object, nil, celconfig.RuntimeCELCostBudget)
	assert.Greater(t, left, int64(celconfig.RuntimeCELCostBudget*3/4))
}

// The same for the largest map, which tenants fill with templates.
func TestLargestGPUResourceMap(t *testing.T) {
	full := v1beta1.GPUResources{MemoryMiB: v1beta1.MaxMappedMemoryMiB, Compute: v1beta1.MaxMappedCompute}
	m := v1beta1.GPUResourceMap{Spec: v1beta1.GPUResourceMapSpec{Templates: map[string]v1beta1.GPUResources{}, ExtendedResources: map[string]v1beta1.GPUResources{}}}
	m.APIVersion, m.Kind, m.Name = v1beta1.GroupVersion.String(), "GPUResourceMap", names.GPUResourceMapName
	for i := range v1beta1.MaxMappedTemplates {
		m.Spec.Templates[fmt.Sprintf("%0253d", i)] = full
	}
	for i := range v1beta1.MaxMappedResources {
		m.Spec.ExtendedResources[fmt.Sprintf("%0253d/%063d", i, i)] = full
	}
	document, err := yaml.Marshal(m)
	require.NoError(t, err)
	r := load(t, "gpuresourcemaps")
	require.Empty(t, r.judge(t, string(document)))
	_, left := r.rules.Validate(t.Context(), field.NewPath(""), r.structural, decode(t, string(document)), nil, celconfig.RuntimeCELCostBudget)
	assert.Greater(t, left, int64(celconfig.RuntimeCELCostBudget/2))
}

// What the API server stores of a profile is what PartitionProfileSpec.Default says.
func TestDefaults(t *testing.T) {
	r := load(t, "partitionprofiles")
	for _, spec := range []string{
		"rules: []", "rules: [{mig: {}, sharing: {}}]", "rules: [{mig: {mode: Disabled}, sharing: {strategy: MPS, replicas: 2}}, {}]",
		"rules: [{sharing: {partitions: {profiles: [cpx]}}}]", "rules: [{sharing: {partitions: {profiles: [cpx], units: [Fraction]}}}]",
		"rules: [{xcp: {}, extendedResource: {device: Auto}}]", "switch: {}",
	} {
		object := decode(t, profileOf(spec))
		defaulting.Default(object, r.structural)
		var stored, want v1beta1.PartitionProfile
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &stored))
		require.NoError(t, yaml.Unmarshal([]byte(profileOf(spec)), &want))
		want.Spec.Default()
		assert.Equal(t, want.Spec, stored.Spec, spec)
	}
	for _, spec := range []string{"", "strategy: {}", "strategy: {order: {}}"} {
		plan := decode(t, "kind: PartitionPlan\nspec: {"+spec+"}")
		defaulting.Default(plan, load(t, "partitionplans").structural)
		assert.Equal(t, map[string]any{"order": map[string]any{"by": "Emptiest"}, "maxFailures": int64(0), "onFailure": "Stop"}, plan["spec"].(map[string]any)["strategy"], spec)
	}
	plan := decode(t, "kind: PartitionPlan\nspec: {strategy: {windows: [{start: '22:00', end: '06:00'}]}}")
	defaulting.Default(plan, load(t, "partitionplans").structural)
	windows := plan["spec"].(map[string]any)["strategy"].(map[string]any)["windows"]
	assert.Equal(t, []any{map[string]any{"start": "22:00", "end": "06:00", "timeZone": "UTC"}}, windows)
}

// The API server changes nothing of what the controller and the plugin write.
func TestStatusHasNoDefaults(t *testing.T) {
	for _, name := range []string{"gpunodes", "partitionplans"} {
		status, err := json.Marshal(readCRD(t, name).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"])
		require.NoError(t, err)
		assert.NotContains(t, string(status), `"default":`, name)
	}
}

// Everything that a person writes in a profile has a description for `kubectl explain`, and a bound.
func TestProfilesAreDescribedAndBounded(t *testing.T) {
	spec := readCRD(t, "partitionprofiles").Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	var check func(path string, s *apiextensionsv1.JSONSchemaProps)
	check = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if s.Type == "array" {
			assert.NotNil(t, s.MaxItems, path)
			check(path+"[]", s.Items.Schema)
		}
		assert.False(t, s.Type == "string" && s.MaxLength == nil && s.Enum == nil, path)
		assert.Nil(t, s.AdditionalProperties, path)
		for name, field := range s.Properties {
			assert.NotEmpty(t, field.Description, path+"."+name)
			assert.NotContains(t, field.Description, "...", path+"."+name)
			check(path+"."+name, &field)
		}
	}
	assert.NotEmpty(t, spec.Description)
	check("spec", &spec)
}

func profileOf(spec string) string {
	return "apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {" + spec + "}"
}

func TestGoodProfiles(t *testing.T) {
	r := load(t, "partitionprofiles")
	for _, spec := range []string{
		"", "rules: []", "rules: [{}]", "rules: [{gpus: {vendor: amd}}, {}]",
		"rules: [{gpus: {productNames: ['*H100*', NVIDIA L4], pciBusIDs: ['0000:c1:00.0', '00000000:C1:00.0'], pciIDs: ['0x233010DE', '0x233010de:0x16C110DE'], indexes: [0, 7], count: 8, vendor: nvidia}}]",
		"rules: [{mig: {}}]", "rules: [{mig: {mode: Dynamic, profiles: [1g, 1g.10gb, 1g.10gb+me, 1g.24gb-me, 1g.24gb+me.all, 2g.48gb+gfx], wholeGPUs: false}}]",
		"rules: [{mig: {profiles: [1g], wholeGPUs: false}}]", "rules: [{mig: {mode: Disabled}}]",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g, count: 2}, {profile: 2g.20gb}]}}]",
		"rules: [{mig: {mode: NoPartitions}}]", "rules: [{gpus: {migSupport: Capable}, mig: {mode: NoPartitions}, sharing: {wholeGPUs: false}}, {gpus: {migSupport: Incapable, vendor: nvidia}}]",
		"rules: [{unchanged: true, sharing: {replicas: 2}, extendedResource: {device: GPUReplica}}]", "rules: [{gpus: {vendor: amd}, unchanged: true}, {unchanged: false, mig: {}, xcp: {}}]",
		"rules: [{xcp: {}}]", "rules: [{xcp: {computePartition: CPX, memoryPartition: NPS4}, mig: {mode: Disabled}}]",
		"rules: [{gpus: {vendor: amd}, xcp: {computePartition: SPX}, sharing: {partitions: {profiles: [cpx, dpx]}}, extendedResource: {device: Partition, profile: cpx}}]",
		"rules: [{gpus: {vendor: nvidia}, sharing: {strategy: MPS, replicas: 48, maxClients: 48, exclusiveProcess: true, maxMemoryLimitPercent: 10000}, extendedResource: {device: GPUReplica}}]",
		"rules: [{gpus: {vendor: nvidia}, sharing: {timeSlice: Long, partitions: {profiles: [3g.40gb, 1g.24gb-me], units: [Memory, Fraction]}}, extendedResource: {device: Partition, profile: 3g.40gb}}]",
		"rules: [{sharing: {replicas: 1000}}]", "rules: [{sharing: {replicas: 5, maxClients: 5}}]", "rules: [{sharing: {maxClients: 10}}]", "rules: [{sharing: {strategy: MPS}}]",
		"rules: [{gpus: {vendor: amd}, extendedResource: {device: Auto}}]", "rules: [{extendedResource: {device: AutoReplica}, mig: {mode: Static, partitions: [{profile: 1g}]}}]",
		"rules: [{sharing: {partitions: {profiles: [1g.10gb, cpx], units: [Memory, Fraction], extendedResource: {device: PartitionReplica}, replicas: [{profile: cpx, count: 4}]}}}]",
		"rules: [{extendedResource: {device: GPU}, sharing: {wholeGPUs: false}}]", "rules: [{sharing: {wholeGPUs: false, replicas: 10}}]",
		"rules: [{sharing: {wholeGPUs: false, replicas: 4}, extendedResource: {device: AutoReplica}}]", "rules: [{sharing: {wholeGPUs: false, replicas: 4, partitions: {profiles: [1g.10gb]}}}]",
		"rules: [{mig: {mode: Disabled}, sharing: {strategy: MPS, partitions: null}}]", "rules: [{mig: {mode: Disabled}, sharing: {partitions: {profiles: [cpx]}}}]",
		"rules: [{sharing: {partitions: {profiles: [cpx, 1g.10gb]}}}]",
		"switch: {}", "switch: {drainDeadline: 10m, afterDeadline: Force, reboot: IfRequired, nodeTaintEffect: NoSchedule, pauseMonitoring: false}", "switch: {drainDeadline: 1h30m}",
	} {
		assert.Empty(t, r.judge(t, profileOf(spec)), spec)
		_, err := profile.Parse("p", []byte(profileOf(spec)))
		assert.NoError(t, err, "and the plugin, %s", spec)
	}
}

// seenLater is what only the API server refuses, or the plugin only when it has
// seen the GPUs.
var seenLater = regexp.MustCompile(`^switch|count: 65|productNames: \[a{65}`)

// Each rule, pattern and limit refuses what it is for, and says so.
func TestBadProfiles(t *testing.T) {
	r := load(t, "partitionprofiles")
	const (
		noWholeShares = "spec.rules[0].sharing: Invalid value: has strategy MPS or a timeSlice, which are for shares of whole GPUs, and sharing.wholeGPUs or mig excludes these: leave them out"
		noShares      = "spec.rules[0].sharing: Invalid value: has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares: set wholeGPUs or partitions, or leave them out"
	)
	for spec, want := range map[string]string{
		"rulez: []":                                                     "spec.rulez: unknown",
		"rules: [{sharing: {replica: 2}}]":                              "spec.rules[0].sharing.replica: unknown",
		"rules: [{mig: {mode: Off}}]":                                   `spec.rules[0].mig.mode: Invalid value: "boolean"`,
		"rules: [{mig: {mode: static}}]":                                `spec.rules[0].mig.mode: Unsupported value: "static": supported values: "Dynamic", "Static", "NoPartitions", "Disabled"`,
		"rules: [{}, {gpus: {vendor: amd}}]":                            `spec.rules: Invalid value: a rule without GPUs selects every GPU, so those after it hold for none: put it last`,
		"rules: [{gpus: {vendor: amd}}, {}, {gpus: {vendor: amd}}]":     "spec.rules: Invalid value",
		"rules: [" + strings.Repeat("{gpus: {vendor: amd}},", 17) + "]": "spec.rules: Too many: 17: must have at most 16 items",

		"rules: [{gpus: {migSupport: Capable}}, {gpus: {}}, {unchanged: true}]":        "spec.rules: Invalid value",
		"rules: [{unchanged: true, mig: {}}]":                                          "spec.rules[0].mig: Invalid value: changes GPUs, and unchanged keeps them as they are: leave one out",
		"rules: [{unchanged: true, xcp: {computePartition: CPX}}]":                     "spec.rules[0].xcp: Invalid value: changes GPUs, and unchanged keeps them as they are: leave one out",
		"rules: [{unchanged: maybe}]":                                                  "spec.rules[0].unchanged: Invalid value",
		"rules: [{gpus: {migSupport: capable}}]":                                       `spec.rules[0].gpus.migSupport: Unsupported value: "capable"`,
		"rules: [{gpus: {migSupport: Capable, vendor: amd}}]":                          "spec.rules[0].gpus.migSupport: Invalid value: selects NVIDIA's GPUs, and vendor those of AMD",
		"rules: [{gpus: {migSupport: Incapable}, xcp: {computePartition: SPX}}]":       "spec.rules[0].xcp: Invalid value: is for AMD's GPUs, and gpus.migSupport selects those of NVIDIA",
		"rules: [{mig: {mode: NoPartitions, profiles: [1g]}}]":                         "spec.rules[0].mig.profiles: Invalid value: is for mode Dynamic only",
		"rules: [{mig: {mode: NoPartitions, partitions: [{profile: 1g}]}}]":            "spec.rules[0].mig.partitions: Invalid value: is for mode Static only",
		"rules: [{mig: {mode: NoPartitions}, extendedResource: {device: GPUReplica}}]": "spec.rules[0].extendedResource.device: Invalid value: is GPUReplica, a share of the whole GPU, which mig does not offer",

		"rules: [{gpus: {vendor: NVIDIA}}]":                                                      `spec.rules[0].gpus.vendor: Unsupported value: "NVIDIA"`,
		"rules: [{gpus: {productNames: []}}]":                                                    "spec.rules[0].gpus.productNames: Invalid value: 0: spec.rules[0].gpus.productNames in body should have at least 1 items",
		"rules: [{gpus: {productNames: ['']}}]":                                                  "spec.rules[0].gpus.productNames[0]: Invalid value",
		"rules: [{gpus: {productNames: [a, a]}}]":                                                `spec.rules[0].gpus.productNames[1]: Duplicate value: "a"`,
		"rules: [{gpus: {pciBusIDs: ['c1:00.0']}}]":                                              "spec.rules[0].gpus.pciBusIDs[0]: Invalid value",
		"rules: [{gpus: {pciBusIDs: []}}]":                                                       "spec.rules[0].gpus.pciBusIDs: Invalid value",
		"rules: [{gpus: {pciIDs: ['0x2330']}}]":                                                  "spec.rules[0].gpus.pciIDs[0]: Invalid value",
		"rules: [{gpus: {pciIDs: []}}]":                                                          "spec.rules[0].gpus.pciIDs: Invalid value",
		"rules: [{gpus: {indexes: [-1]}}]":                                                       "spec.rules[0].gpus.indexes[0]: Invalid value: -1: spec.rules[0].gpus.indexes[0] in body should be greater than or equal to 0",
		"rules: [{gpus: {indexes: []}}]":                                                         "spec.rules[0].gpus.indexes: Invalid value",
		"rules: [{gpus: {indexes: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}}]": "spec.rules[0].gpus.indexes: Too many: 17",
		"rules: [{gpus: {productNames: [" + strings.Repeat("a", 65) + "]}}]":                     "spec.rules[0].gpus.productNames[0]: Too long",
		"rules: [{gpus: {count: 0}}]":                                                            "spec.rules[0].gpus.count: Invalid value: 0",
		"rules: [{gpus: {count: 65}}]":                                                           "spec.rules[0].gpus.count: Invalid value: 65",

		"rules: [{mig: {mode: Static}}]":                                                       "spec.rules[0].mig.partitions: Required value: is missing: mode Static makes the partitions that it names",
		"rules: [{mig: {mode: Static, partitions: []}}]":                                       "spec.rules[0].mig.partitions: Invalid value: 0",
		"rules: [{mig: {partitions: [{profile: 1g}]}}]":                                        "spec.rules[0].mig.partitions: Invalid value: is for mode Static only; for Dynamic use profiles",
		"rules: [{mig: {mode: Disabled, partitions: [{profile: 1g}]}}]":                        "spec.rules[0].mig.partitions: Invalid value",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g}, {profile: 2g}]}}]":           "spec.rules[0].mig.partitions: Invalid value: one profile can fill what is left: give the others a count",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g, count: 1}, {profile: 1g}]}}]": "spec.rules[0].mig.partitions[1]: Duplicate value",
		"rules: [{mig: {mode: Static, partitions: [{count: 1}]}}]":                             "spec.rules[0].mig.partitions[0].profile: Required value",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g, count: 0}]}}]":                "spec.rules[0].mig.partitions[0].count: Invalid value: 0",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g, count: 17}]}}]":               "spec.rules[0].mig.partitions[0].count: Invalid value: 17",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1c.3g.40gb}]}}]":                  "spec.rules[0].mig.partitions[0].profile: Invalid value",
		"rules: [{mig: {mode: Static, partitions: [{profile: 1g}], profiles: [1g]}}]":          "spec.rules[0].mig.profiles: Invalid value: is for mode Dynamic only; for Static say partitions",
		"rules: [{mig: {mode: Disabled, wholeGPUs: true}}]":                                    "spec.rules[0].mig.wholeGPUs: Invalid value: is for mode Dynamic only",
		"rules: [{mig: {profiles: []}}]":                                                       "spec.rules[0].mig.profiles: Invalid value: 0",
		"rules: [{mig: {profiles: [cpx]}}]":                                                    "spec.rules[0].mig.profiles[0]: Invalid value: \"cpx\"",
		"rules: [{mig: {profiles: [1g, 1g]}}]":                                                 "spec.rules[0].mig.profiles[1]: Duplicate value",
		"rules: [{gpus: {vendor: amd}, mig: {}}]":                                              "spec.rules[0].mig: Invalid value: is for NVIDIA's GPUs, and the rule is for those of AMD; use xcp.computePartition",
		"rules: [{gpus: {vendor: nvidia}, xcp: {}}]":                                           "spec.rules[0].xcp: Invalid value: is for AMD's GPUs, and the rule is for those of NVIDIA; use mig",
		"rules: [{xcp: {computePartition: cpx}}]":                                              "spec.rules[0].xcp.computePartition: Unsupported value: \"cpx\"",
		"rules: [{xcp: {memoryPartition: NPS3}}]":                                              "spec.rules[0].xcp.memoryPartition: Unsupported value: \"NPS3\"",

		"rules: [{sharing: {replicas: 0}}]":                                                                   "spec.rules[0].sharing.replicas: Invalid value: 0",
		"rules: [{sharing: {replicas: 1001}}]":                                                                "spec.rules[0].sharing.replicas: Invalid value: 1001",
		"rules: [{sharing: {replicas: '4'}}]":                                                                 `spec.rules[0].sharing.replicas: Invalid value: "string"`,
		"rules: [{sharing: {maxClients: 1001}}]":                                                              "spec.rules[0].sharing.maxClients: Invalid value: 1001",
		"rules: [{sharing: {maxClients: 9}}]":                                                                 "spec.rules[0].sharing.maxClients: Invalid value: is less than replicas",
		"rules: [{sharing: {replicas: 20, maxClients: 19}}]":                                                  "spec.rules[0].sharing.maxClients: Invalid value",
		"rules: [{sharing: {strategy: MPS, replicas: 49}}]":                                                   "spec.rules[0].sharing.replicas: Invalid value: an MPS server takes 48 clients: set at most so many replicas",
		"rules: [{sharing: {strategy: MPS, maxClients: 49}}]":                                                 "spec.rules[0].sharing.maxClients: Invalid value: an MPS server takes 48 clients",
		"rules: [{sharing: {strategy: mps}}]":                                                                 "spec.rules[0].sharing.strategy: Unsupported value",
		"rules: [{sharing: {strategy: MPS, timeSlice: Long}}]":                                                "spec.rules[0].sharing.timeSlice: Invalid value: is for strategy TimeSlicing only",
		"rules: [{sharing: {timeSlice: Longest}}]":                                                            "spec.rules[0].sharing.timeSlice: Unsupported value",
		"rules: [{sharing: {exclusiveProcess: true}}]":                                                        "spec.rules[0].sharing.exclusiveProcess: Invalid value: is for strategy MPS only",
		"rules: [{sharing: {strategy: MPS, partitions: {profiles: [1g.10gb]}}}]":                              "spec.rules[0].sharing.partitions: Invalid value: cannot be shared with strategy MPS, which is for whole GPUs; use TimeSlicing",
		"rules: [{sharing: {partitions: {profiles: [1g.10gb+me]}}}]":                                          "spec.rules[0].sharing.partitions.profiles[0]: Invalid value",
		"rules: [{sharing: {partitions: {profiles: [spx]}}}]":                                                 "spec.rules[0].sharing.partitions.profiles[0]: Invalid value",
		"rules: [{sharing: {partitions: {profiles: []}}}]":                                                    "spec.rules[0].sharing.partitions.profiles: Invalid value",
		"rules: [{sharing: {partitions: {}}}]":                                                                "spec.rules[0].sharing.partitions.profiles: Required value",
		"rules: [{gpus: {vendor: amd}, sharing: {strategy: MPS}}]":                                            "spec.rules[0].sharing: Invalid value: AMD's GPUs have neither strategy MPS nor a timeSlice: leave them out",
		"rules: [{gpus: {vendor: amd}, sharing: {timeSlice: Long}}]":                                          "spec.rules[0].sharing: Invalid value",
		"rules: [{gpus: {vendor: amd}, sharing: {partitions: {profiles: [1g.10gb]}}}]":                        "spec.rules[0].sharing: Invalid value: partitions.profiles has a profile of the other vendor's GPUs",
		"rules: [{gpus: {vendor: nvidia}, sharing: {partitions: {profiles: [cpx]}}}]":                         "spec.rules[0].sharing: Invalid value",
		"rules: [{extendedResource: {device: Half}}]":                                                         "spec.rules[0].extendedResource.device: Unsupported value",
		"rules: [{extendedResource: {device: AutoReplica}, sharing: {strategy: MPS}}]":                        "spec.rules[0].extendedResource.device: Invalid value: is AutoReplica, and strategy MPS is for whole GPUs; use TimeSlicing, or GPUReplica",
		"rules: [{sharing: {partitions: {profiles: [cpx], replicas: [{profile: dpx, count: 4}]}}}]":           "spec.rules[0].sharing.partitions.replicas: Invalid value: names a profile that is not among profiles",
		"rules: [{sharing: {partitions: {profiles: [cpx], extendedResource: {device: PartitionReplica}}}}]":   "spec.rules[0].sharing.partitions.extendedResource.device: Invalid value: is PartitionReplica, a share by fraction: add Fraction to units",
		"rules: [{extendedResource: {device: Partition, profile: 1g}}]":                                       "spec.rules[0].extendedResource.profile: Invalid value",
		"rules: [{extendedResource: {device: GPU, profile: cpx}}]":                                            "spec.rules[0].extendedResource.profile: Invalid value: is for device: Partition, which needs it",
		"rules: [{extendedResource: {device: Partition}}]":                                                    "spec.rules[0].extendedResource.profile: Invalid value: is for device: Partition, which needs it",
		"rules: [{extendedResource: {profile: cpx}}]":                                                         "spec.rules[0].extendedResource.device: Required value",
		"rules: [{sharing: {partitions: {profiles: [cpx], units: []}}}]":                                      "spec.rules[0].sharing.partitions.units: Invalid value",
		"rules: [{sharing: {partitions: {profiles: [cpx], units: [Compute]}}}]":                               "spec.rules[0].sharing.partitions.units[0]: Unsupported value",
		"rules: [{gpus: {vendor: nvidia}, extendedResource: {device: Partition, profile: cpx}}]":              "spec.rules[0].extendedResource.profile: Invalid value: is a profile of the other vendor's GPUs",
		"rules: [{gpus: {vendor: amd}, extendedResource: {device: Partition, profile: 1g.10gb}}]":             "spec.rules[0].extendedResource.profile: Invalid value",
		"rules: [{extendedResource: {device: GPUReplica}, sharing: {wholeGPUs: false}}]":                      "spec.rules[0].extendedResource.device: Invalid value: is GPUReplica, and sharing.wholeGPUs is false: there are no replicas",
		"rules: [{extendedResource: {device: GPUReplica}, mig: {wholeGPUs: false}}]":                          "spec.rules[0].extendedResource.device: Invalid value: is GPUReplica, a share of the whole GPU, which mig does not offer",
		"rules: [{extendedResource: {device: GPUReplica}, mig: {mode: Static, partitions: [{profile: 1g}]}}]": "spec.rules[0].extendedResource.device: Invalid value",

		"rules: [{sharing: {strategy: MPS}, mig: {mode: Static, partitions: [{profile: 1g}]}}]":   noWholeShares,
		"rules: [{sharing: {strategy: MPS}, mig: {wholeGPUs: false}}]":                            noWholeShares,
		"rules: [{sharing: {timeSlice: Long}, mig: {mode: NoPartitions}}]":                        noWholeShares,
		"rules: [{sharing: {wholeGPUs: false, timeSlice: Long, partitions: {profiles: [cpx]}}}]":  noWholeShares,
		"rules: [{sharing: {wholeGPUs: false, strategy: MPS, exclusiveProcess: true}}]":           noWholeShares,
		"rules: [{sharing: {wholeGPUs: false, replicas: 4}}]":                                     noShares,
		"rules: [{sharing: {wholeGPUs: false, maxClients: 48}}]":                                  noShares,
		"rules: [{sharing: {wholeGPUs: false, failRequestsGreaterThanOne: true}}]":                noShares,
		"rules: [{sharing: {partitions: {profiles: [1g.10gb]}}, mig: {mode: Disabled}}]":          "spec.rules[0].sharing: Invalid value: partitions.profiles has MIG profiles, and mig.mode excludes partitions: leave them out",
		"rules: [{sharing: {partitions: {profiles: [cpx, 1g.10gb]}}, mig: {mode: NoPartitions}}]": "spec.rules[0].sharing: Invalid value: partitions.profiles has MIG profiles",

		"rules: [{sharing: {maxMemoryLimitPercent: 99}}]":                                                   "spec.rules[0].sharing.maxMemoryLimitPercent: Invalid value: 99",
		"rules: [{sharing: {maxMemoryLimitPercent: 10001}}]":                                                "spec.rules[0].sharing.maxMemoryLimitPercent: Invalid value: 10001",
		"rules: [{sharing: {wholeGPUs: false, partitions: {profiles: [cpx]}, maxMemoryLimitPercent: 200}}]": "spec.rules[0].sharing.maxMemoryLimitPercent: Invalid value: is for shares of whole GPUs, and wholeGPUs is false: leave it out",

		"switch: {drainDeadline: 600}":         "spec.switch.drainDeadline: Invalid value",
		"switch: {drainDeadline: soon}":        "spec.switch.drainDeadline: Invalid value",
		"switch: {drainDeadline: -1m}":         "spec.switch.drainDeadline: Invalid value",
		"switch: {drainDeadline: 0s}":          "spec.switch.drainDeadline: Invalid value: must be 1s to 24h",
		"switch: {drainDeadline: 25h}":         "spec.switch.drainDeadline: Invalid value: must be 1s to 24h",
		"switch: {afterDeadline: Kill}":        "spec.switch.afterDeadline: Unsupported value",
		"switch: {reboot: Always}":             "spec.switch.reboot: Unsupported value",
		"switch: {nodeTaintEffect: NoExecute}": "spec.switch.nodeTaintEffect: Unsupported value",
	} {
		assert.Contains(t, r.judge(t, profileOf(spec)), want, spec)
		if !seenLater.MatchString(spec) {
			_, err := profile.Parse("p", []byte(profileOf(spec)))
			assert.Error(t, err, "nor does the plugin, %s", spec)
		}
	}
	long := strings.Replace(profileOf(""), "name: p", "name: "+strings.Repeat("p", 64), 1)
	assert.Contains(t, r.judge(t, long), "a node's label tranche.dev/profile names the profile, and a label has at most 63 characters: choose a shorter name")
	assert.Empty(t, r.judge(t, strings.Replace(profileOf(""), "name: p", "name: "+strings.Repeat("p", 63), 1)))
	assert.Contains(t, r.judge(t, "apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}"), "spec: Required value")
}

func TestGPUNodes(t *testing.T) {
	r := load(t, "gpunodes")
	node := func(name, rest string) string {
		return "apiVersion: tranche.dev/v1beta1\nkind: GPUNode\nmetadata: {name: " + name + "}\n" + rest
	}
	named := func(n int, more string) (all string) {
		for i := range n {
			all += fmt.Sprintf("{name: n%d, %s},", i, more)
		}
		return all
	}
	gpus := func(n int, more string) string { return named(n, "vendor: amd, productName: x, index: 0, "+more) }
	parts := func(n int) string { return "partitions: [" + named(n, "profile: 1g") + "]" }
	changes := func(n, kept int) (all string) {
		for i := range n {
			all += fmt.Sprintf("{gpu: g%d, description: x, keptDevices: [%s]},", i, strings.Repeat("a,", kept))
		}
		return all
	}
	moves := func(n, devices int) string {
		return strings.Repeat("{namespace: a, name: b, uid: c, ownerUID: d, toNodeName: e, toDevices: [a], fromDevices: ["+strings.Repeat("a,", devices)+"]},", n)
	}
	for _, rest := range []string{
		"", "spec: {profileName: all-1g.24gb-me, paused: true}", "spec: {profileName: ''}",
		"status: {state: Draining, desired: {profileName: p, source: Spec, hash: a, rules: [{mig: {mode: NotYetInvented}}]}}",
		// The controller's own default may be longer than what a profile can say.
		"status: {switch: {id: a, attempt: 1, startTime: '2026-11-21T20:00:00.000000Z', stateChangeTime: '2026-11-21T20:00:00.000000Z', policy: {drainDeadline: 48h0m0s}, from: {source: Spec, hash: a}, to: {source: Spec, hash: b}}}",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0}, {name: b, vendor: amd, productName: x, index: 0}]}}",
		"status: {node: {pluginVersion: v0.1.0-3+dirty, protocolVersion: 1, gpus: [" + gpus(12, parts(64)+", heldDevices: ["+strings.Repeat("a,", 64)+"]") + "]}}",
		"status: {node: {task: {switchID: a, state: Planning, phase: Planned, changes: [" + changes(8, v1beta1.MaxKeptDevices) + "]}}}",
	} {
		assert.Empty(t, r.judge(t, node("node-a", rest)), rest)
	}
	for rest, want := range map[string]string{
		"spec: {profileName: Big}":                                 "spec.profileName: Invalid value",
		"spec: {profileName: a..b}":                                "spec.profileName: Invalid value",
		"spec: {profileName: " + strings.Repeat("p", 64) + "}":     "spec.profileName: Too long: may not be more than 63",
		"spec: {paused: on please}":                                "spec.paused: Invalid value",
		"spec: {profiles: x}":                                      "spec.profiles: unknown",
		"status: {state: Confused}":                                "status.state: Unsupported value",
		"status: {desired: {profileName: p, source: Me, hash: a}}": "status.desired.source: Unsupported value",
		"status: {desired: {profileName: p, source: Spec}}":        "status.desired.hash: Required value",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0}, {name: a, vendor: amd, productName: x, index: 0}]}}":                                                                                               "status.node.gpus[1]: Duplicate value",
		"status: {node: {otherSystems: [" + named(v1beta1.MaxOtherSystems+1, "message: a") + "]}}":                                                                                                                                      "status.node.otherSystems: Too many",
		"status: {node: {otherSystems: [{name: a, message: " + strings.Repeat("a", v1beta1.MaxListedText+1) + "}]}}":                                                                                                                    "status.node.otherSystems[0].message: Too long",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0, problems: [{cause: a, message: " + strings.Repeat("a", v1beta1.MaxReportText+1) + "}]}]}}":                                                          "status.node.gpus[0].problems[0].message: Too long",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0, pending: " + strings.Repeat("a", v1beta1.MaxReportText+1) + "}]}}":                                                                                  "status.node.gpus[0].pending: Too long",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0, heldDevices: [" + strings.Repeat("a,", v1beta1.MaxGPUNames+1) + "]}]}}":                                                                             "status.node.gpus[0].heldDevices: Too many",
		"status: {node: {gpus: [{name: a, vendor: nvidia, productName: x, index: 0, partitions: [{profile: 1g, name: " + strings.Repeat("a", 64) + "}]}]}}":                                                                             "status.node.gpus[0].partitions[0].name: Too long",
		"status: {node: {gpus: [" + gpus(13, parts(60)+", heldDevices: ["+strings.Repeat("a,", 60)+"]") + "]}}":                                                                                                                         "status.node.gpus: Invalid value: have more than 1536 partitions and heldDevices together",
		"status: {node: {gpus: [" + gpus(5, "problems: [{cause: a, message: "+strings.Repeat("a", v1beta1.MaxReportText)+"}]") + "]}}":                                                                                                  "status.node.gpus: Invalid value: have more than 8192 characters of problems and pending together",
		"status: {node: {task: {switchID: a, state: Planning, phase: Planned, changes: [" + changes(9, 57) + "]}}}":                                                                                                                     "status.node.task.changes: Invalid value: have more than 512 keptDevices together",
		"status: {conditions: [{type: A, status: 'True', reason: R, lastTransitionTime: '2026-11-21T20:00:00Z', message: " + strings.Repeat("a", v1beta1.MaxConditionMessage+1) + "}]}":                                                 "status.conditions: Invalid value: a condition has",
		"status: {defragmentation: {id: a, state: Evicting, pod: {namespace: a, name: b, uid: c}, devices: [a], startTime: '2026-11-21T20:00:00.000000Z', deadlineTime: '2026-11-21T20:00:00.000000Z', moves: [" + moves(5, 52) + "]}}": "status.defragmentation.moves: Invalid value: have more than 256 devices together",
	} {
		assert.Contains(t, r.judge(t, node("node-a", rest)), want, rest)
	}
}
