package helm_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

const driver = "gpu.tranche.dev"

// deviceClasses returns the classes of the chart by name.
func deviceClasses(t *testing.T, args ...string) map[string]*resourceapi.DeviceClass {
	t.Helper()
	classes := map[string]*resourceapi.DeviceClass{}
	for _, class := range all[*resourceapi.DeviceClass](decode(t, render(t, chart, args...))) {
		require.NotContains(t, classes, class.Name, "two classes of one name")
		classes[class.Name] = class
	}
	return classes
}

func TestDeviceClassNames(t *testing.T) {
	classes := deviceClasses(t)
	resources := map[string]string{}
	for name, class := range classes {
		require.Empty(t, validation.IsDNS1123Subdomain(name))
		require.True(t, strings.HasPrefix(name, "gpu"), "%s: KAI counts classes with gpu in their name", name)
		if resource := ptr.Deref(class.Spec.ExtendedResourceName, ""); resource != "" {
			require.Empty(t, validation.IsQualifiedName(resource))
			require.NotContains(t, resources, resource, "also of class %s", resources[resource])
			resources[resource] = name
		}
	}

	for name, resource := range map[string]string{
		"gpu.tranche.dev":                          "",
		"gpu-nvidia.tranche.dev":                   "",
		"gpu-amd.tranche.dev":                      "",
		"gpu-xcp.tranche.dev":                      "",
		"gpu-xcp-cpx.tranche.dev":                  "",
		"gpu-xcp-qpx.tranche.dev":                  "",
		"gpu-xcp-tpx.tranche.dev":                  "",
		"gpu-xcp-dpx.tranche.dev":                  "",
		"gpu-xcp-spx.tranche.dev":                  "",
		"gpu-partition.tranche.dev":                "",
		"gpu-mig.tranche.dev":                      "",
		"gpu-memory-share.tranche.dev":             "",
		"gpu-memory-share-amd.tranche.dev":         "",
		"gpu-fraction-share-nvidia.tranche.dev":    "nvidia.com/gpu.shared",
		"gpu-fraction-share-amd.tranche.dev":       "",
		"gpu-partition-memory-share.tranche.dev":   "",
		"gpu-partition-fraction-share.tranche.dev": "",
		"gpu-mig-1g-10gb.tranche.dev":              "nvidia.com/mig-1g.10gb",
		"gpu-mig-1g-10gb-plus-me.tranche.dev":      "nvidia.com/mig-1g.10gb.me",
		"gpu-mig-1g-24gb-no-me.tranche.dev":        "nvidia.com/mig-1g.24gb-me",
		"gpu-mig-1g-24gb-plus-me.tranche.dev":      "nvidia.com/mig-1g.24gb.me",
		"gpu-mig-1g-24gb-plus-me-all.tranche.dev":  "nvidia.com/mig-1g.24gb.me.all",
		"gpu-mig-4g-96gb-plus-gfx.tranche.dev":     "nvidia.com/mig-4g.96gb.gfx",
		"gpu-mig-7g-141gb.tranche.dev":             "nvidia.com/mig-7g.141gb",
		"gpu-mig-2g-12gb-plus-me.tranche.dev":      "nvidia.com/mig-2g.12gb.me",
	} {
		require.Contains(t, classes, name)
		require.Equal(t, resource, ptr.Deref(classes[name].Spec.ExtendedResourceName, ""), name)
	}
}

func TestSwitchedOff(t *testing.T) {
	for name, class := range deviceClasses(t, "--set", "extendedResources.mig.enabled=false,extendedResources.shared.enabled=false") {
		require.Nil(t, class.Spec.ExtendedResourceName, name)
	}
	for vendor, resource := range map[string]string{"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"} {
		name := "gpu-extended-" + vendor + ".tranche.dev"
		require.NotContains(t, deviceClasses(t), name)
		with := deviceClasses(t, "--set", "extendedResources."+vendor+".enabled=true")
		require.Contains(t, with, name)
		require.Equal(t, resource, *with[name].Spec.ExtendedResourceName)
		require.Len(t, with, len(deviceClasses(t))+1, "the other vendor's name stays off")
	}
	const small, extendedSmall = "gpu-mig-1g-10gb-plus-me.tranche.dev", "gpu-extended-mig-1g-10gb-plus-me.tranche.dev"
	require.NotContains(t, deviceClasses(t), extendedSmall)
	with := deviceClasses(t, "--set", "extendedResources.migReplicas.enabled=true")
	require.Nil(t, with[small].Spec.ExtendedResourceName, "one class has the name")
	require.Equal(t, "nvidia.com/mig-1g.10gb.me", *with[extendedSmall].Spec.ExtendedResourceName)
	require.NotContains(t, deviceClasses(t, "--set", "extendedResources.migReplicas.enabled=true,extendedResources.mig.enabled=false"), extendedSmall)
	require.Empty(t, deviceClasses(t, "--set", "deviceClasses.enabled=false"))
	require.Len(t, deviceClasses(t, "--set-json", "deviceClasses.migProfiles=[]"), 20)
}

// TestDeviceClassSelection runs every class's expression over devices as a node
// publishes them, with the compiler of the scheduler.
func TestDeviceClassSelection(t *testing.T) {
	device := func(driver string, pairs ...string) cel.Device {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for i := 0; i < len(pairs); i += 2 {
			attributes[resourceapi.QualifiedName(pairs[i])] = resourceapi.DeviceAttribute{StringValue: ptr.To(pairs[i+1])}
			if pairs[i] == names.AttributePartitionable {
				attributes[names.AttributePartitionable] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
			}
		}
		return cel.Device{Driver: driver, Attributes: attributes}
	}
	amd := func(pairs ...string) cel.Device {
		return device(driver, append([]string{"vendor", "amd", "memoryPartition", "NPS1"}, pairs...)...)
	}
	extended := device(driver, "type", "gpu", "vendor", "nvidia", "extendedResourceName", "nvidia.com/gpu")
	odd := device(driver)
	odd.Attributes["type"] = resourceapi.DeviceAttribute{IntValue: ptr.To[int64](1)}

	matched := map[string][]string{}
	classes := deviceClasses(t, "--set", "extendedResources.nvidia.enabled=true,extendedResources.amd.enabled=true,extendedResources.migReplicas.enabled=true")
	tests := map[string]struct {
		device cel.Device
		want   []string
	}{
		"whole NVIDIA GPU":  {device(driver, "type", "gpu", "vendor", "nvidia"), []string{"gpu", "gpu-nvidia"}},
		"served GPU":        {extended, []string{"gpu", "gpu-extended-nvidia", "gpu-nvidia"}},
		"partitionable":     {device(driver, "type", "gpu", "vendor", "nvidia", "partitionable", "true"), []string{"gpu", "gpu-nvidia"}},
		"AMD GPU, no modes": {device(driver, "type", "gpu", "vendor", "amd"), []string{"gpu", "gpu-amd"}},
		"AMD GPU in SPX":    {amd("type", "gpu", "partitionable", "true"), []string{"gpu", "gpu-amd", "gpu-xcp-spx"}},
		"served AMD GPU": {amd("type", "gpu", "partitionable", "true", "extendedResourceName", "amd.com/gpu"),
			[]string{"gpu", "gpu-amd", "gpu-extended-amd", "gpu-xcp-spx"}},
		"partition":       {device(driver, "type", "mig", "vendor", "nvidia", "profile", "1g.10gb"), []string{"gpu-mig", "gpu-mig-1g-10gb", "gpu-partition"}},
		"with engines":    {device(driver, "type", "mig", "vendor", "nvidia", "profile", "1g.24gb+me"), []string{"gpu-mig", "gpu-mig-1g-24gb-plus-me", "gpu-partition"}},
		"without engines": {device(driver, "type", "mig", "vendor", "nvidia", "profile", "1g.24gb-me"), []string{"gpu-mig", "gpu-mig-1g-24gb-no-me", "gpu-partition"}},
		"unknown profile": {device(driver, "type", "mig", "vendor", "nvidia", "profile", "9g.999gb"), []string{"gpu-mig", "gpu-partition"}},
		"CPX":             {amd("type", "xcp", "profile", "cpx"), []string{"gpu-partition", "gpu-xcp", "gpu-xcp-cpx"}},
		"QPX":             {amd("type", "xcp", "profile", "qpx"), []string{"gpu-partition", "gpu-xcp", "gpu-xcp-qpx"}},
		"TPX":             {amd("type", "xcp", "profile", "tpx"), []string{"gpu-partition", "gpu-xcp", "gpu-xcp-tpx"}},
		"DPX":             {amd("type", "xcp", "profile", "dpx"), []string{"gpu-partition", "gpu-xcp", "gpu-xcp-dpx"}},
		"a mode to come":  {amd("type", "xcp", "profile", "hpx"), []string{"gpu-partition", "gpu-xcp"}},
		"share of a GPU by memory": {device(driver, "type", "share", "shareUnit", "Memory", "vendor", "nvidia"),
			[]string{"gpu-memory-share", "gpu-memory-share-nvidia"}},
		"share of an AMD GPU": {amd("type", "share", "shareUnit", "Memory"),
			[]string{"gpu-memory-share", "gpu-memory-share-amd"}},
		"share of a GPU by fraction": {device(driver, "type", "share", "shareUnit", "Fraction", "vendor", "nvidia"),
			[]string{"gpu-fraction-share", "gpu-fraction-share-nvidia"}},
		"replica": {device(driver, "type", "share", "shareUnit", "Fraction", "vendor", "nvidia", "extendedResourceName", "nvidia.com/gpu"),
			[]string{"gpu-fraction-share", "gpu-fraction-share-nvidia", "gpu-extended-nvidia"}},
		"partition by its old name": {device(driver, "type", "mig", "vendor", "nvidia", "profile", "1g.24gb+me", "extendedResourceName", "nvidia.com/mig-1g.24gb.me"),
			[]string{"gpu-extended-mig-1g-24gb-plus-me", "gpu-mig", "gpu-mig-1g-24gb-plus-me", "gpu-partition"}},
		"replica of a partition by its old name": {device(driver, "type", "share", "shareUnit", "Fraction", "vendor", "nvidia", "profile", "1g.10gb", "extendedResourceName", "nvidia.com/mig-1g.10gb"),
			[]string{"gpu-extended-mig-1g-10gb", "gpu-partition-fraction-share"}},
		"replica of a partition as a GPU": {device(driver, "type", "share", "shareUnit", "Fraction", "vendor", "nvidia", "profile", "1g.10gb", "extendedResourceName", "nvidia.com/gpu"),
			[]string{"gpu-extended-nvidia", "gpu-partition-fraction-share"}},
		"share of a partition": {device(driver, "type", "share", "shareUnit", "Memory", "vendor", "nvidia", "profile", "1g.10gb"),
			[]string{"gpu-partition-memory-share"}},
		"share of a partition by fraction": {amd("type", "share", "shareUnit", "Fraction", "profile", "cpx"),
			[]string{"gpu-partition-fraction-share"}},
		"GPU to look at":                  {device(driver, "type", "monitor", "vendor", "nvidia"), []string{"gpu-monitor"}},
		"share that does not say of what": {device(driver, "type", "share", "vendor", "nvidia"), nil},
		"no attributes":                   {device(driver), nil},
		"odd attribute":                   {odd, nil},
		"another driver": {device("gpu.nvidia.com",
			driver+"/type", "mig", driver+"/vendor", "nvidia", driver+"/profile", "1g.10gb", "type", "gpu"), nil},
	}
	for className, class := range classes {
		require.Len(t, class.Spec.Selectors, 1, "%s: one expression each", className)
		compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(class.Spec.Selectors[0].CEL.Expression, cel.Options{})
		require.Nil(t, compiled.Error, className)
		require.Less(t, compiled.MaxCost, uint64(resourceapi.CELSelectorExpressionMaxCost), className)
		for name, test := range tests {
			matches, _, err := compiled.DeviceMatches(t.Context(), test.device)
			require.NoError(t, err, "%s on %s", className, name)
			if matches {
				matched[name] = append(matched[name], strings.TrimSuffix(className, ".tranche.dev"))
			}
		}
	}
	for name, test := range tests {
		require.ElementsMatch(t, test.want, matched[name], name)
	}
}

// TestEachProfileHasItsClass: every profile of every GPU that the simulator
// knows, and no other one.
func TestEachProfileHasItsClass(t *testing.T) {
	content, err := os.ReadFile("../../pkg/publish/models/nvidia.yaml")
	require.NoError(t, err)
	var table struct {
		Models map[string]struct {
			Profiles []struct {
				Name string `json:"name"`
			} `json:"profiles"`
		} `json:"models"`
	}
	require.NoError(t, yaml.Unmarshal(content, &table))
	known := map[string]bool{}
	for _, model := range table.Models {
		for _, profile := range model.Profiles {
			known[profile.Name] = true
		}
	}
	require.NotEmpty(t, known)

	selected := map[string]bool{}
	byProfile := regexp.MustCompile(`"mig" && .*profile\.orValue\(""\) == "(.+)"`)
	for name, class := range deviceClasses(t) {
		if match := byProfile.FindStringSubmatch(class.Spec.Selectors[0].CEL.Expression); match != nil {
			require.False(t, selected[match[1]], "%s: another class selects %s too", name, match[1])
			selected[match[1]] = true
		}
	}
	require.Equal(t, known, selected)
}

// TestClassesTellTheNamespace: kubectl tranche names it in its commands.
func TestClassesTellTheNamespace(t *testing.T) {
	var classes []resourceapi.DeviceClass
	for _, class := range all[*resourceapi.DeviceClass](decode(t, render(t, chart, "--namespace", "gpu-drivers"))) {
		classes = append(classes, *class)
	}
	require.Equal(t, "gpu-drivers", cluster.SystemNamespace(classes))
}
