package helm_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/pkg/claimconfig"
)

type (
	object = map[string]any
	list   = []any
)

// exactly is a request as it stands in a claim. Amounts are given in pairs of name
// and quantity.
func exactly(name, class string, amounts ...any) object {
	return object{"name": name, "exactly": ask(class, amounts...)}
}

func ask(class string, amounts ...any) object {
	out := object{"deviceClassName": class}
	if len(amounts) > 0 {
		requests := object{}
		for i := 0; i < len(amounts); i += 2 {
			requests[amounts[i].(string)] = amounts[i+1]
		}
		out["capacity"] = object{"requests": requests}
	}
	return out
}

// firstOf is a request with alternatives.
func firstOf(name string, alternatives ...object) object {
	all := list{}
	for i, a := range alternatives {
		a["name"] = string(rune('a' + i))
		all = append(all, a)
	}
	return object{"name": name, "firstAvailable": all}
}

func claimFor(requests ...any) object {
	return object{"spec": object{"devices": object{"requests": requests}}}
}

func templateOf(claim object) object { return object{"spec": object{"spec": claim["spec"]}} }

// regexpShare finds in the selector of a class what its shares are measured in.
var regexpShare = regexp.MustCompile(`\?shareUnit\.orValue\(""\) == "(.+?)"`)

const (
	byMemory   = "gpu-memory-share.tranche.dev"
	byFraction = "gpu-fraction-share-nvidia.tranche.dev"
	ofParts    = "gpu-partition-memory-share.tranche.dev"
)

// TestSharePolicy: what claims may say, and what is said of those that may not. A
// template is judged like the claim in it.
func TestSharePolicy(t *testing.T) {
	objects := decode(t, render(t, chart))
	policy := policyNamed(t, objects, "-share-amount-checks")
	requireBound(t, objects)
	rule := policy.spec.MatchConstraints.ResourceRules[0]
	require.Equal(t, []string{"resourceclaims", "resourceclaimtemplates"}, rule.Resources)
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE"}, rule.Operations,
		"the scheduler and others update claims that were made before")

	for name, test := range map[string]struct {
		claim object
		want  string
	}{
		"no amounts":      {claimFor(exactly("gpu", byMemory), exactly("other", byFraction)), ""},
		"memory":          {claimFor(exactly("gpu", byMemory, "memory", "20Gi", "computePercent", "50", "clients", "2")), ""},
		"least memory":    {claimFor(exactly("gpu", ofParts, "memory", "1Mi")), ""},
		"odd memory":      {claimFor(exactly("gpu", byMemory, "memory", "1500M")), ""},
		"fraction":        {claimFor(exactly("gpu", byFraction, "fraction", "0.5", "computePercent", "0")), ""},
		"thousandths":     {claimFor(exactly("gpu", byFraction, "fraction", "333m"), exactly("b", byFraction, "fraction", "0.001")), ""},
		"all of it":       {claimFor(exactly("gpu", byFraction, "fraction", "1", "computePercent", "100")), ""},
		"compute in kilo": {claimFor(exactly("gpu", byFraction, "computePercent", "0.1k")), ""},

		"a few bytes": {claimFor(exactly("gpu", byMemory, "memory", "20")),
			"request gpu of class gpu-memory-share.tranche.dev: memory is 20, and it must be at least 1Mi, as in 20Gi"},
		"negative memory": {claimFor(exactly("gpu", ofParts, "memory", "-1Gi")),
			"request gpu of class gpu-partition-memory-share.tranche.dev: memory is -1Gi, and it must be at least 1Mi, as in 20Gi"},
		"no fraction": {claimFor(exactly("gpu", byFraction, "fraction", "0")),
			"request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 0, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"},
		"percent": {claimFor(exactly("gpu", byFraction, "fraction", "50")),
			"request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 50, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"},
		"too fine": {claimFor(exactly("gpu", byFraction, "fraction", "0.3333")),
			"request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 0.3333, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"},
		"as fine as a quantity can be": {claimFor(exactly("gpu", byFraction, "fraction", "500000001n")),
			"request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 500000001n, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"},
		"too much compute": {claimFor(exactly("gpu", byMemory, "computePercent", "101")),
			"request gpu of class gpu-memory-share.tranche.dev: computePercent is 101, and it must be a whole number of percent from 0 to 100"},
		"part of a percent": {claimFor(exactly("gpu", byMemory, "computePercent", "0.5")),
			"request gpu of class gpu-memory-share.tranche.dev: computePercent is 0.5, and it must be a whole number of percent from 0 to 100"},
		"negative compute": {claimFor(exactly("gpu", byMemory, "computePercent", "-1")),
			"request gpu of class gpu-memory-share.tranche.dev: computePercent is -1, and it must be a whole number of percent from 0 to 100"},
		"no client": {claimFor(exactly("gpu", byMemory, "clients", "0")),
			"request gpu of class gpu-memory-share.tranche.dev: clients is 0, and it must be a whole number from 1 on"},
		"half a client": {claimFor(exactly("gpu", byMemory, "clients", "1500m")),
			"request gpu of class gpu-memory-share.tranche.dev: clients is 1500m, and it must be a whole number from 1 on"},
		"fraction of the memory class": {claimFor(exactly("gpu", byMemory, "fraction", "0.5")),
			"request gpu of class gpu-memory-share.tranche.dev asks for fraction 0.5, and such a share has memory, computePercent and clients (by fraction: class gpu-fraction-share.tranche.dev)"},
		"memory of the fraction class": {claimFor(exactly("gpu", byFraction, "memory", "1Gi")),
			"request gpu of class gpu-fraction-share-nvidia.tranche.dev asks for memory 1Gi, and such a share has fraction, computePercent and clients (by memory: class gpu-memory-share.tranche.dev)"},
		"a name with its domain": {claimFor(exactly("gpu", byMemory, "gpu.tranche.dev/memory", "1Gi")),
			"request gpu of class gpu-memory-share.tranche.dev asks for gpu.tranche.dev/memory 1Gi, and such a share has memory, computePercent and clients"},
		"an alternative": {claimFor(firstOf("gpu", ask("gpu.tranche.dev"), ask(byFraction, "fraction", "2"))),
			"request gpu/b of class gpu-fraction-share-nvidia.tranche.dev: fraction is 2, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"},
		"two mistakes of one kind": {claimFor(exactly("x", "gpu.tranche.dev"), exactly("a", byMemory, "clients", "0"), exactly("b", byFraction, "clients", "-1")),
			"request a of class gpu-memory-share.tranche.dev: clients is 0, and it must be a whole number from 1 on; " +
				"request b of class gpu-fraction-share-nvidia.tranche.dev: clients is -1, and it must be a whole number from 1 on"},
		"a number that is none": {claimFor(exactly("gpu", byMemory, "computePercent", int64(200))),
			"request gpu of class gpu-memory-share.tranche.dev: computePercent is 200, and it must be a whole number of percent from 0 to 100"},
	} {
		for kind, made := range map[string]object{"claim": test.claim, "template": templateOf(test.claim)} {
			t.Run(kind+" "+name, func(t *testing.T) {
				require.True(t, policy.concerns(creating(made)))
				require.Equal(t, test.want, policy.refusal(creating(made)))
			})
		}
	}
}

// TestSharePolicyOfTypedClaims: the API server writes quantities in its own way.
func TestSharePolicyOfTypedClaims(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-share-amount-checks")
	amounts := map[resourceapi.QualifiedName]resource.Quantity{"fraction": resource.MustParse("0.3333"), "computePercent": resource.MustParse("25")}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: byFraction, Capacity: &resourceapi.CapacityRequirements{Requests: amounts},
		}}},
	}}}
	const refused = "request gpu of class gpu-fraction-share-nvidia.tranche.dev: fraction is 333300u, and it must be above 0, at most 1 and a multiple of 0.001, as in 0.5"
	template := &resourceapi.ResourceClaimTemplate{Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec}}
	for _, made := range []any{claim, template} {
		require.True(t, policy.concerns(creating(made)))
		require.Equal(t, refused, policy.refusal(creating(made)))
	}
	amounts["fraction"] = resource.MustParse("0.333")
	require.Empty(t, policy.refusal(creating(claim)))
	amounts["memory"] = resource.MustParse("1Gi")
	require.Contains(t, policy.refusal(creating(claim)), "asks for memory 1Gi")
}

// TestSharePolicyLeavesOthersAlone: it does not look at claims for anything else,
// whatever these ask for.
func TestSharePolicyLeavesOthersAlone(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-share-amount-checks")
	for name, claim := range map[string]object{
		"nothing":           {"spec": object{}},
		"no requests":       {"spec": object{"devices": object{}}},
		"another driver's":  claimFor(exactly("nic", "nic.example.com", "bandwidth", "0")),
		"our whole GPUs":    claimFor(exactly("gpu", "gpu.tranche.dev")),
		"somebody's shares": claimFor(exactly("gpu", "my-gpu-memory-share.tranche.dev", "memory", "0")),
		"a name like ours":  claimFor(exactly("gpu", "gpu-memory-share.tranche.devx", "memory", "0")),
		"alternatives":      claimFor(firstOf("gpu", ask("gpu.tranche.dev"), ask("gpu-mig.tranche.dev"))),
	} {
		require.False(t, policy.concerns(creating(claim)), name)
		require.False(t, policy.concerns(creating(templateOf(claim))), name)
	}
}

// TestEveryShareClassIsChecked: the classes of shares are those whose amounts the
// policy looks at.
func TestEveryShareClassIsChecked(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-share-amount-checks")
	found := 0
	for name, class := range deviceClasses(t) {
		expression := class.Spec.Selectors[0].CEL.Expression
		isShare := regexpShare.MatchString(expression)
		require.Equal(t, isShare, policy.concerns(creating(claimFor(exactly("gpu", name)))), name)
		if isShare {
			found++
			basis := strings.ToLower(regexpShare.FindStringSubmatch(expression)[1])
			amount := map[string]string{"memory": "1Gi", "fraction": "1"}[basis]
			require.Empty(t, policy.refusal(creating(claimFor(exactly("gpu", name, basis, amount)))), name)
		}
	}
	require.Equal(t, 8, found)
}

// TestShareConfigPolicy: what the plugin would refuse in the configuration of a claim or class is refused when
// it is written. Other drivers' is nobody's business here.
func TestShareConfigPolicy(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-share-config-checks")
	rules := policy.spec.MatchConstraints.ResourceRules
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE"}, rules[0].Operations)
	require.Equal(t, []string{"deviceclasses"}, rules[1].Resources)
	valid := func(change ...any) object {
		p := object{"apiVersion": claimconfig.APIVersion, "kind": claimconfig.Kind, "memoryLimit": "8Gi"}
		for i := 0; i < len(change); i += 2 {
			if p[change[i].(string)] = change[i+1]; change[i+1] == nil {
				delete(p, change[i].(string))
			}
		}
		return p
	}
	const amount = "memoryLimit must be an amount of at least 1Mi, as in 8Gi"
	for name, test := range map[string]struct {
		parameters object
		want       string
	}{
		"a limit":                 {valid(), ""},
		"in bytes":                {valid("memoryLimit", int64(1<<30)), ""},
		"with a part":             {valid("memoryLimit", "1.5Gi"), ""},
		"another version":         {valid("apiVersion", "tranche.dev/v1"), "apiVersion must be tranche.dev/v1beta1"},
		"another kind":            {valid("apiVersion", "resource.nvidia.com/v1beta1", "kind", "GpuConfig"), "apiVersion must be tranche.dev/v1beta1; kind must be ShareConfig"},
		"no kind":                 {valid("kind", nil), "kind must be ShareConfig"},
		"nothing":                 {object{}, "apiVersion must be tranche.dev/v1beta1; kind must be ShareConfig; memoryLimit is missing"},
		"no limit":                {valid("memoryLimit", nil), "memoryLimit is missing"},
		"unknown keys":            {valid("replicas", int64(4), "limit", "8Gi"), "limit: unknown key; replicas: unknown key"},
		"zero":                    {valid("memoryLimit", "0"), amount},
		"a few bytes":             {valid("memoryLimit", "8"), amount},
		"negative":                {valid("memoryLimit", "-8Gi"), amount},
		"no quantity":             {valid("memoryLimit", "8GiB"), amount},
		"exponents":               {valid("memoryLimit", "1e1000000000"), amount},
		"an object":               {valid("memoryLimit", object{"a": "8Gi"}), amount},
		"a list":                  {valid("memoryLimit", list{"8Gi"}), amount},
		"a number":                {valid("memoryLimit", 1.5), amount},
		"a kind that is a number": {valid("kind", int64(1)), "kind must be ShareConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if want != "" {
				want = "the configuration for gpu.tranche.dev: " + want
			}
			config := list{object{"requests": list{"gpu"}, "opaque": object{"driver": driver, "parameters": test.parameters}}}
			claim := object{"spec": object{"devices": object{"config": config}}}
			for kind, made := range map[string]object{"claim": claim, "template": templateOf(claim), "class": {"spec": object{"config": config}}} {
				require.True(t, policy.concerns(creating(made)), kind)
				require.Equal(t, want, policy.refusal(creating(made)), kind)
			}
			// The plugin says the same.
			raw, err := json.Marshal(test.parameters)
			require.NoError(t, err)
			_, err = claimconfig.Read([]resourceapi.DeviceAllocationConfiguration{{
				Source:              resourceapi.AllocationConfigSourceClaim,
				DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}}},
			}})
			require.Equal(t, want == "", err == nil, "%v", err)
		})
	}
	typed := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Config: []resourceapi.DeviceClaimConfiguration{claimconfig.New(8192)}}}}
	require.True(t, policy.concerns(creating(typed)))
	require.Empty(t, policy.refusal(creating(typed)))
	for name, config := range map[string]list{"none": {}, "another driver's": {object{"opaque": object{"driver": "gpu.nvidia.com", "parameters": object{}}}}, "not opaque": {object{}}} {
		require.False(t, policy.concerns(creating(object{"spec": object{"devices": object{"config": config}}})), name)
	}
}

func TestSharePolicyOff(t *testing.T) {
	for _, set := range []string{"shareAmountChecks.enabled=false", "deviceClasses.enabled=false"} {
		for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](decode(t, render(t, chart, "--set", set))) {
			require.NotContains(t, p.Name, "share-amount-checks", set)
			require.NotContains(t, p.Name, "share-config-checks", set)
		}
	}
}
